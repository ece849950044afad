package main

// stoker token: the bearer tokens with which portals come in by HTTP, in the file that intake reads.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/token"
)

func tokenCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "token",
		Short: "Add, list and remove tokens for commands by HTTP",
		Long: `token keeps the file of bearer tokens that intake reads (--events-token): whose each is, which namespaces and kinds it
is for, and until when. The file holds hashes; a token is shown once, when it is added. intake reads the file again when it changes.

Without --file it is that of the local stack. On a cluster, keep the file as a Secret that intake's pods mount.`,
		Example: `  stoker token add shop --namespace shop --expires 90d
  stoker token list
  stoker token remove shop`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	file := c.PersistentFlags().String("file", "", "`file` of the tokens; default: that of the local stack")
	c.AddCommand(tokenAddCommand(a, file), tokenListCommand(a, file), tokenRemoveCommand(a, file))
	return c
}

func tokenAddCommand(a *app, file *string) *cobra.Command {
	var namespaces, kinds []string
	var expires string
	c := &cobra.Command{
		Use:   "add NAME --namespace NAMESPACE",
		Short: "Make a token and print it, once",
		Example: `  stoker token add shop --namespace shop --expires 90d
  stoker token add operations --namespace '*' --kind tenantcontrolplanes --kind datastores --file tokens.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			end, err := endOf(expires, time.Now())
			if err != nil {
				return err
			}
			secret := token.New()
			made := token.Token{Name: args[0], Hash: token.Hash(secret), Kinds: kinds, Namespaces: namespaces, Expires: end}
			err = a.changeTokens(*file, func(f *token.File) error {
				f.Tokens = append(f.Tokens, made)
				return nil
			})
			if err != nil {
				return err
			}
			a.sayf(a.err, "token %s is in %s; here it is, this once:\n", made.Name, a.tokenFile(*file))
			a.sayf(a.out, "%s\n", secret)
			return nil
		},
	}
	c.Flags().StringSliceVarP(&namespaces, "namespace", "n", nil, "`namespace` whose tenants it may command; repeat it, or '*' for all")
	c.Flags().StringSliceVar(&kinds, "kind", nil, "`kind` it may command: "+strings.Join(token.Kinds(), ", ")+"; default: "+event.TenantControlPlanes)
	c.Flags().StringVar(&expires, "expires", "", "`when` it ends: 90d, 12h, or an RFC 3339 time; default: never")
	return c
}

// endOf reads --expires; zero for never.
func endOf(expires string, now time.Time) (time.Time, error) {
	if expires == "" {
		return time.Time{}, nil
	}
	end, err := time.Parse(time.RFC3339, expires)
	if err != nil {
		var days int
		after, bad := time.ParseDuration(expires)
		if n, e := fmt.Sscanf(expires+"|", "%dd|", &days); e == nil && n == 1 {
			after, bad = time.Duration(days)*24*time.Hour, nil
		}
		if bad != nil {
			return end, usagef("--expires %q: must be like 90d, 12h, or 2027-01-31T18:00:00Z (RFC 3339)", expires)
		}
		end = now.Add(after).UTC().Truncate(time.Second)
	}
	if !end.After(now) {
		return end, usagef("--expires %q: is past", expires)
	}
	return end, nil
}

func tokenListCommand(a *app, file *string) *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:   "list",
		Short: "List whose tokens there are, and what they are for",
		Example: `  stoker token list
  stoker token list -o yaml`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := checkOutput(format); err != nil {
				return err
			}
			f, err := readTokens(a.tokenFile(*file))
			if err != nil {
				return err
			}
			if len(f.Tokens) == 0 && forPeople(format) {
				a.sayf(a.err, "no tokens; add one with `stoker token add NAME --namespace NAMESPACE`\n")
				return nil
			}
			return a.showTokens(f.Tokens, format)
		},
	}
	output(c, &format)
	return c
}

func (a *app) showTokens(all []token.Token, format string) error {
	names := make([]string, 0, len(all))
	rows := [][]string{{"NAME", "NAMESPACES", "KINDS", "EXPIRES"}}
	for i := range all {
		t := &all[i]
		if len(t.Kinds) == 0 {
			t.Kinds = []string{event.TenantControlPlanes}
		}
		end := "never"
		if !t.Expires.IsZero() {
			end = t.Expires.UTC().Format(time.RFC3339)
		}
		names = append(names, t.Name)
		rows = append(rows, []string{t.Name, dash(strings.Join(t.Namespaces, ",")), strings.Join(t.Kinds, ","), end})
	}
	if all == nil {
		all = []token.Token{}
	}
	return write(a.out, format, all, names, func(bool) [][]string { return rows })
}

func tokenRemoveCommand(a *app, file *string) *cobra.Command {
	return &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove a token; it is refused from then on",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			err := a.changeTokens(*file, func(f *token.File) error {
				i := slices.IndexFunc(f.Tokens, func(t token.Token) bool { return t.Name == args[0] })
				if i < 0 {
					return fmt.Errorf("there is no token %s in %s; `stoker token list` lists them", args[0], a.tokenFile(*file))
				}
				f.Tokens = slices.Delete(f.Tokens, i, i+1)
				return nil
			})
			if err == nil {
				a.sayf(a.out, "token %s removed\n", args[0])
			}
			return err
		},
	}
}

// tokenFile is the file that a command works on, empty when there is none.
func (a *app) tokenFile(flag string) string {
	if local := a.target().Local; flag == "" && local != "" {
		return filepath.Join(local, "http", "tokens.yaml")
	}
	return flag
}

// readTokens reads a file of tokens; one that isn't there has none.
func readTokens(file string) (token.File, error) {
	if file == "" {
		return token.File{}, usagef("--file is missing: no local stack is found here or above, so say which file of tokens is meant")
	}
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return token.File{}, nil
	}
	if err != nil {
		return token.File{}, err
	}
	f, err := token.Parse(data)
	if err != nil {
		return f, fmt.Errorf("%s: %w", file, err)
	}
	return f, nil
}

// changeTokens changes the file of tokens in one step, so that intake never reads half of it.
func (a *app) changeTokens(flag string, change func(*token.File) error) error {
	file := a.tokenFile(flag)
	f, err := readTokens(file)
	if err != nil {
		return err
	}
	if err := change(&f); err != nil {
		return err
	}
	data, err := f.Marshal()
	if err != nil {
		return err
	}
	if _, err := token.Parse(data); err != nil {
		return usagef("%w", err)
	}
	next, err := os.CreateTemp(filepath.Dir(file), ".tokens-") // readable to its owner only
	if err != nil {
		return err
	}
	_, err = next.Write(data)
	if err := errors.Join(err, next.Sync(), next.Close()); err != nil {
		return errors.Join(err, os.Remove(next.Name()))
	}
	return os.Rename(next.Name(), file)
}
