package env

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// Helm builds Helm, once for all test runs, and returns where it is.
var Helm = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	bin := filepath.Join(cache, "stoker", "helm")
	dir := filepath.Join(Root(), "tools", "helm")
	cmd := exec.Command("go", "build", "-o", bin, "helm.sh/helm/v4/cmd/helm")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build Helm: %w: %s", err, out)
	}
	return bin, nil
})
