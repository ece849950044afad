package node

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// A translation is what a container is told instead of what its pod says, because it has neither a file system nor a
// network of its own: see the package's comment. The zero value changes nothing.
type translation struct {
	address string            // the pod's
	paths   map[string]string // mountPath in the container → path on the host
}

// command translates a container's whole command line. program is what its image runs as.
func (t translation) command(program string, args []string) []string {
	out := make([]string, 0, len(args)+1)
	for i, arg := range args {
		arg = t.path(arg)
		if i > 0 {
			arg = t.host(arg)
		}
		out = append(out, arg)
	}
	for _, bind := range bindsEverywhere[program] {
		if !hasFlag(out, bind.flag) {
			out = append(out, bind.flag+"="+t.address+bind.port)
		}
		for i := range out { // a port alone
			if port, is := strings.CutPrefix(out[i], bind.flag+"=:"); is {
				out[i] = bind.flag + "=" + t.address + ":" + port
			}
		}
	}
	return out
}

// bindsEverywhere are the programs that listen on all addresses, or on the loopback address of all pods, unless told otherwise; the flags
// tell them.
var bindsEverywhere = map[string][]struct{ flag, port string }{
	"kube-apiserver": {{"--bind-address", ""}}, "kube-controller-manager": {{"--bind-address", ""}}, "kube-scheduler": {{"--bind-address", ""}},
	"kine":         {{"--metrics-bind-address", ":8080"}, {"--listen-address", ":2379"}},
	"stoker-gate":  {{"--health-bind-address", ":8082"}},
	"proxy-server": {{"--agent-bind-address", ""}, {"--health-bind-address", ""}, {"--admin-bind-address", ""}},
}

func hasFlag(args []string, name string) bool {
	return slices.ContainsFunc(args, func(arg string) bool {
		return arg == name || strings.HasPrefix(arg, name+"=")
	})
}

// path replaces what lies below a mount by where it lies on the host.
func (t translation) path(s string) string {
	if len(t.paths) == 0 || !strings.Contains(s, "/") {
		return s
	}
	// The longest mount wins: /etc/kubernetes/pki before /etc/kubernetes.
	mounts := slices.SortedFunc(maps.Keys(t.paths), func(a, b string) int { return len(b) - len(a) })
	var out strings.Builder
	for i := 0; i < len(s); {
		mount := ""
		if s[i] == '/' && startsPath(s[:i]) {
			for _, m := range mounts {
				if strings.HasPrefix(s[i:], m) && endsName(s[i+len(m):]) {
					mount = m
					break
				}
			}
		}
		if mount == "" {
			out.WriteByte(s[i])
			i++
			continue
		}
		out.WriteString(t.paths[mount])
		i += len(mount)
	}
	return out.String()
}

// startsPath tells whether a / after this text begins an absolute path, as it does after = or , and in unix:///run, but
// not in MySQL's tcp(host:port)/database.
func startsPath(before string) bool {
	return before == "" || strings.HasSuffix(before, "://") || !isPathByte(before[len(before)-1]) && before[len(before)-1] != ')'
}

func endsName(after string) bool {
	return after == "" || after[0] == '/' || !isPathByte(after[0])
}

func isPathByte(b byte) bool {
	return b == '/' || isNameByte(b) || b == '~'
}

func isNameByte(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '.' || b == '_' || b == '-'
}

// everywhere are the hosts that mean this pod: all its addresses, or its loopback.
var everywhere = []string{"0.0.0.0", "[::1]", "[::]", "::1", "::", "127.0.0.1", "localhost"}

// host replaces a host that means the pod itself by the pod's address, wherever an argument holds a host: alone, after
// = , @ or //, followed by a port, a path or nothing.
func (t translation) host(s string) string {
	if t.address == "" {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); {
		name := ""
		if i == 0 || strings.IndexByte("=,@/", s[i-1]) >= 0 {
			for _, host := range everywhere {
				if strings.HasPrefix(s[i:], host) && endsHost(s[i+len(host):], host) {
					name = host
					break
				}
			}
		}
		if name == "" {
			out.WriteByte(s[i])
			i++
			continue
		}
		out.WriteString(t.address)
		i += len(name)
	}
	return out.String()
}

func endsHost(after, host string) bool {
	if after == "" || after[0] == ',' || after[0] == '/' {
		return true
	}
	// A bare IPv6 address can't be followed by a port.
	return after[0] == ':' && (host[0] == '[' || !strings.Contains(host, ":"))
}

// file translates a file of a Secret or ConfigMap. A kubeconfig that leads to the pod itself leads to the pod's address, and still
// expects the certificate of the host it named; an egress selector configuration names its socket, and a configuration of
// authorization its kubeconfigs, by the path on the host. Nothing else changes.
func (t translation) file(name string, data []byte) []byte {
	base := filepath.Base(name)
	if strings.HasPrefix(base, "egress-selector") || base == "authorization.yaml" {
		return []byte(t.path(string(data)))
	}
	if t.address == "" || !strings.HasSuffix(base, ".conf") && !strings.Contains(base, "kubeconfig") {
		return data
	}
	var config map[string]any
	if err := yaml.Unmarshal(data, &config); err != nil || config["kind"] != "Config" {
		return data
	}
	changed := false
	clusters, _ := config["clusters"].([]any)
	for _, item := range clusters {
		entry, _ := item.(map[string]any)
		cluster, _ := entry["cluster"].(map[string]any)
		server, _ := cluster["server"].(string)
		for _, host := range []string{"127.0.0.1", "localhost"} {
			rest, ok := strings.CutPrefix(server, "https://"+host)
			if !ok || !endsHost(rest, host) {
				continue
			}
			cluster["server"] = "https://" + t.address + rest
			if _, ok := cluster["tls-server-name"]; !ok {
				cluster["tls-server-name"] = host
			}
			changed = true
		}
	}
	if !changed {
		return data
	}
	out, err := yaml.Marshal(config)
	if err != nil {
		return data
	}
	return out
}
