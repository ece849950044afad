package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/stoker-k8s/stoker/local/debian"
	"github.com/stoker-k8s/stoker/local/process"
	"github.com/stoker-k8s/stoker/pkg/pki"
)

// mysqlAdmin may do everything in a DataStore's MariaDB.
const mysqlAdmin = "admin"

// openMySQL makes a DataStore of a MariaDB that takes passwords over TLS only.
func (s *Stack) openMySQL(ctx context.Context, d *dataStore, component string, at netip.Addr, server pki.Pair) error {
	program, err := debian.Find(ctx, "mariadb-server-core", "usr/sbin/mariadbd", s.cfg.Progress)
	if err != nil {
		return err
	}
	_, password, err := s.password(component)
	if err != nil {
		return err
	}
	dir := filepath.Join(s.cfg.Dir, "databases", component)
	data, start := filepath.Join(dir, "data"), filepath.Join(dir, "start.sql")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := writeFile(start, fmt.Appendf(nil, "CREATE USER IF NOT EXISTS '%[1]s'@'%%' IDENTIFIED BY '%[2]s' REQUIRE SSL;\nGRANT ALL ON *.* TO '%[1]s'@'%%' WITH GRANT OPTION;\n", mysqlAdmin, password)); err != nil {
		return err
	}
	share, err := mysqlShare(program)
	if err != nil {
		return err
	}
	spec := process.Spec{Path: program.Path, Env: append(hostEnv(), append(program.Env, "LC_ALL=C")...), Dir: dir, Log: s.logFile(component), NotRoot: true}
	args := func(data string, more ...string) []string {
		return append([]string{
			"mariadbd", "--no-defaults", "--datadir=" + data, "--lc-messages-dir=" + share, "--character-sets-dir=" + filepath.Join(share, "charsets"),
			"--innodb-buffer-pool-size=64M", "--innodb-log-file-size=32M",
		}, more...)
	}
	if _, err := os.Stat(data); errors.Is(err, os.ErrNotExist) {
		s.cfg.Progress(component+": making its system tables", false)
		half, statements := data+".new", filepath.Join(dir, "install.sql")
		if err := errors.Join(os.RemoveAll(half), os.Mkdir(half, 0o700), writeInstall(statements, share)); err != nil {
			return err
		}
		install := spec
		install.Args, install.Input = args(half, "--bootstrap"), statements
		if err := process.Run(ctx, install); err != nil {
			return err
		}
		if err := os.Rename(half, data); err != nil {
			return err
		}
	}
	endpoint := net.JoinHostPort(at.String(), "3306")
	spec.Args = args(data, "--bind-address="+at.String(), "--port=3306", "--socket="+filepath.Join(s.shortDir, component),
		"--pid-file="+filepath.Join(dir, "pid"), "--init-file="+start, "--skip-name-resolve", "--skip-log-bin", "--max-connections=500",
		"--ssl-ca="+d.ca.CertFile, "--ssl-cert="+server.CertFile, "--ssl-key="+server.KeyFile, "--require-secure-transport=ON")
	d.component = newComponent(component, spec, 10*time.Second, s.log)
	d.ready = func(ctx context.Context) error {
		return wait(ctx, 50*time.Millisecond, "datastore "+d.name, func(ctx context.Context) error {
			if err := d.component.giveUp(); err != nil {
				return stopWaiting{err}
			}
			// It listens once its tables are open.
			var dialer net.Dialer
			conn, err := dialer.DialContext(ctx, "tcp", endpoint)
			if err != nil {
				return err
			}
			return conn.Close()
		})
	}
	d.objects = PasswordObjects("MySQL", d.name, component, endpoint, d.ca.Cert, mysqlAdmin, password)
	return nil
}

// mysqlShare finds the directory of messages, character sets and system tables.
func mysqlShare(program debian.Program) (string, error) {
	for _, name := range []string{"mysql", "mariadb"} {
		share := filepath.Join(program.Root, "usr/share", name)
		if _, err := os.Stat(filepath.Join(share, "mysql_system_tables.sql")); err == nil {
			return share, nil
		}
	}
	return "", fmt.Errorf("%s has no mysql_system_tables.sql below %s", program.Path, filepath.Join(program.Root, "usr/share"))
}

// writeInstall writes the statements that make a server's own tables. Each ends with its line.
func writeInstall(path, share string) error {
	var all bytes.Buffer
	all.WriteString("CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\n")
	for _, file := range []string{"mysql_system_tables.sql", "mysql_performance_tables.sql", "mysql_system_tables_data.sql"} {
		data, err := os.ReadFile(filepath.Join(share, file))
		if err != nil {
			return err
		}
		all.Write(data)
	}
	return writeFile(path, all.Bytes())
}
