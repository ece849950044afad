// Flags of the control plane's components, in layers. Pure.

package workload

import (
	"maps"
	"slices"
	"strings"
)

// flags are a component's flags by name, without dashes.
type flags map[string]string

// layer returns a component's arguments: managed flags and those defaults that the user doesn't set, sorted, then what
// the user adds, verbatim and in the user's order, but for managed flags. Later arguments win, so a managed flag
// must not be among the user's.
func layer(managed, defaults flags, user []string) []string {
	extras := without(user, managed)
	own := flags{}
	maps.Copy(own, managed)
	for flag, value := range defaults {
		if _, ok := own[flag]; !ok && !sets(extras, flag) {
			own[flag] = value
		}
	}
	args := make([]string, 0, len(own)+len(extras))
	for flag, value := range own {
		args = append(args, "--"+flag+"="+value)
	}
	slices.Sort(args)
	return append(args, extras...)
}

// without returns the user's arguments that don't set a managed flag.
func without(user []string, managed flags) []string {
	kept := make([]string, 0, len(user))
	for i := 0; i < len(user); i++ {
		flag, inline := flagName(user[i])
		if _, ours := managed[flag]; !ours {
			kept = append(kept, user[i])
			continue
		}
		if !inline && i+1 < len(user) && !strings.HasPrefix(user[i+1], "-") {
			i++ // its value
		}
	}
	return kept
}

// sets reports whether arguments set a flag.
func sets(args []string, flag string) bool {
	return slices.ContainsFunc(args, func(arg string) bool {
		name, _ := flagName(arg)
		return name == flag
	})
}

// flagName returns the name of the flag an argument sets, empty for none, and whether its value is in the same argument.
// Kubernetes takes --secure_port for --secure-port.
func flagName(arg string) (flag string, inline bool) {
	flag, ok := strings.CutPrefix(strings.TrimSpace(arg), "--")
	if !ok {
		return "", false
	}
	flag, _, inline = strings.Cut(flag, "=")
	return strings.ReplaceAll(flag, "_", "-"), inline
}
