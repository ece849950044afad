package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// serve answers the API server's requests for containers' logs, which is what kubectl logs asks for.
func (n *Node) serve(ctx context.Context) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", n.logs)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	unsupported := func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "the process node has logs only, not "+strings.Split(r.URL.Path, "/")[1], http.StatusNotImplemented)
	}
	for _, path := range []string{"/exec/", "/attach/", "/portForward/", "/run/"} {
		mux.HandleFunc(path, unsupported)
	}
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(n.cfg.Log.Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(tls.NewListener(n.cfg.Listener, n.cfg.TLS)); !errors.Is(err, http.ErrServerClosed) {
		n.cfg.Log.Warn("node's logs can't be asked for any more", "error", err)
	}
}

func (n *Node) logs(w http.ResponseWriter, r *http.Request) {
	path, running := n.logFile(r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container"))
	if path == "" {
		http.Error(w, "no such container on this node", http.StatusNotFound)
		return
	}
	query := r.URL.Query()
	if query.Get("previous") == "true" {
		http.Error(w, "the log of a container's runs is one: ask without --previous", http.StatusBadRequest)
		return
	}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return // nothing was printed yet
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer f.Close()
	if lines, err := strconv.Atoi(query.Get("tailLines")); err == nil {
		if err := seekLines(f, lines); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	left := int64(-1)
	if limit, err := strconv.ParseInt(query.Get("limitBytes"), 10, 64); err == nil {
		left = limit
	}
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w)
	for {
		ended := !running()
		n, err := copyUpTo(w, f, left)
		if err != nil {
			return
		}
		if left >= 0 {
			if left -= n; left <= 0 {
				return
			}
		}
		if n > 0 {
			_ = flush.Flush()
			if info, err := f.Stat(); err == nil {
				if at, err := f.Seek(0, io.SeekCurrent); err == nil && at > info.Size() {
					_, _ = f.Seek(0, io.SeekStart) // it was rotated
				}
			}
		}
		if query.Get("follow") != "true" || ended {
			return
		}
		if !sleep(r.Context(), 250*time.Millisecond) {
			return
		}
	}
}

func copyUpTo(w io.Writer, r io.Reader, limit int64) (int64, error) {
	if limit < 0 {
		return io.Copy(w, r)
	}
	return io.Copy(w, io.LimitReader(r, limit))
}

// logFile is where a container's output goes; running tells whether more may come.
func (n *Node) logFile(namespace, name, container string) (path string, running func() bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.pods {
		if p.namespace != namespace || p.name != name {
			continue
		}
		for _, c := range append(p.init[:len(p.init):len(p.init)], p.main...) {
			if c.spec.Name == container {
				uid := p.uid
				return filepath.Join(p.dir, container+".log"), func() bool {
					n.mu.Lock()
					defer n.mu.Unlock()
					return n.pods[uid] != nil
				}
			}
		}
	}
	return "", nil
}

// seekLines moves to where the last lines of a file begin.
func seekLines(f *os.File, lines int) error {
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	const block = 16 << 10
	buffer := make([]byte, block)
	found := 0
	for at := end; at > 0; {
		size := min(int64(block), at)
		at -= size
		if _, err := f.ReadAt(buffer[:size], at); err != nil {
			return err
		}
		for i := size - 1; i >= 0; i-- {
			// The newline at the very end ends the last line, it doesn't begin another.
			if buffer[i] == '\n' && at+i != end-1 {
				if found++; found == lines {
					_, err := f.Seek(at+i+1, io.SeekStart)
					return err
				}
			}
		}
	}
	start := int64(0)
	if lines == 0 {
		start = end
	}
	_, err = f.Seek(start, io.SeekStart)
	return err
}
