package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// mounts are a pod's volumes, on disk.
type mounts struct {
	address string            // the pod's
	volumes map[string]string // name → path on the host
	tokens  []token
}

// A token is a file that has to be renewed now and then.
type token struct {
	path     string
	audience []string
	seconds  int64
	renew    time.Time
}

// paths is where a container's mounts lie.
func (m *mounts) paths(c *corev1.Container) map[string]string {
	out := make(map[string]string, len(c.VolumeMounts))
	for _, v := range c.VolumeMounts {
		host, ok := m.volumes[v.Name]
		if !ok {
			continue
		}
		at := filepath.Clean(v.MountPath)
		if host = filepath.Join(host, v.SubPath); host != at {
			out[at] = host
		}
	}
	return out
}

// A file is what a volume's file is to hold.
type file struct {
	data []byte
	mode int32
}

const defaultMode = int32(0o644)

// mount makes the pod's volumes. An error may be temporary: a Secret that is still to come.
func (p *pod) mount(ctx context.Context) (*mounts, error) {
	p.mu.Lock()
	m := &mounts{address: p.address.String(), volumes: map[string]string{}}
	p.mu.Unlock()
	root := filepath.Join(p.dir, "volumes")
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, err
	}
	src := p.source(m)
	for i := range p.spec.Volumes {
		v := &p.spec.Volumes[i]
		host, err := p.volume(ctx, src, m, root, v)
		if err != nil {
			return nil, fmt.Errorf("volume %q: %w", v.Name, err)
		}
		m.volumes[v.Name] = host
	}
	for _, list := range [][]corev1.Container{p.spec.InitContainers, p.spec.Containers} {
		for i := range list {
			if err := p.subPaths(m, &list[i]); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
}

// volume makes one volume and returns its path.
func (p *pod) volume(ctx context.Context, src *source, m *mounts, root string, v *corev1.Volume) (string, error) {
	dir := filepath.Join(root, v.Name)
	var files map[string]file
	var err error
	switch {
	case v.EmptyDir != nil:
		dir = filepath.Join(p.short, v.Name)
		return dir, os.MkdirAll(dir, 0o700)
	case v.HostPath != nil:
		return v.HostPath.Path, hostPath(v.HostPath)
	case v.Secret != nil:
		s := v.Secret
		var data map[string][]byte
		if data, err = src.secret(ctx, s.SecretName, s.Optional); err == nil {
			files, err = project(data, s.Items, mode(s.DefaultMode), s.Optional)
		}
	case v.ConfigMap != nil:
		c := v.ConfigMap
		var data map[string][]byte
		if data, err = src.configMap(ctx, c.Name, c.Optional); err == nil {
			files, err = project(data, c.Items, mode(c.DefaultMode), c.Optional)
		}
	case v.DownwardAPI != nil:
		files, err = p.downward(m, v.DownwardAPI.Items, mode(v.DownwardAPI.DefaultMode))
	case v.Projected != nil:
		files, err = p.projected(ctx, src, m, dir, v.Projected)
	default:
		return "", errors.New("the process node knows emptyDir, hostPath, secret, configMap, downwardAPI and projected only")
	}
	if err != nil {
		return "", err
	}
	t := translation{address: m.address, paths: p.shared()}
	maps.Copy(t.paths, p.mountPaths(map[string]string{v.Name: dir}))
	for name, f := range files {
		f.data = t.file(name, f.data)
		files[name] = f
	}
	return dir, materialise(dir, files)
}

// shared is where the pod's containers find its emptyDirs, in which they may keep sockets for each other.
func (p *pod) shared() map[string]string {
	volumes := map[string]string{}
	for i := range p.spec.Volumes {
		if v := &p.spec.Volumes[i]; v.EmptyDir != nil {
			volumes[v.Name] = filepath.Join(p.short, v.Name)
		}
	}
	return p.mountPaths(volumes)
}

// mountPaths is where the pod's containers find these volumes.
func (p *pod) mountPaths(volumes map[string]string) map[string]string {
	m := &mounts{volumes: volumes}
	all := map[string]string{}
	for _, list := range [][]corev1.Container{p.spec.InitContainers, p.spec.Containers} {
		for i := range list {
			maps.Copy(all, m.paths(&list[i]))
		}
	}
	return all
}

func (p *pod) projected(ctx context.Context, src *source, m *mounts, dir string, v *corev1.ProjectedVolumeSource) (map[string]file, error) {
	all := map[string]file{}
	fallback := mode(v.DefaultMode)
	for _, s := range v.Sources {
		var files map[string]file
		var err error
		switch {
		case s.Secret != nil:
			var data map[string][]byte
			if data, err = src.secret(ctx, s.Secret.Name, s.Secret.Optional); err == nil {
				files, err = project(data, s.Secret.Items, fallback, s.Secret.Optional)
			}
		case s.ConfigMap != nil:
			var data map[string][]byte
			if data, err = src.configMap(ctx, s.ConfigMap.Name, s.ConfigMap.Optional); err == nil {
				files, err = project(data, s.ConfigMap.Items, fallback, s.ConfigMap.Optional)
			}
		case s.DownwardAPI != nil:
			files, err = p.downward(m, s.DownwardAPI.Items, fallback)
		case s.ServiceAccountToken != nil:
			t := token{path: filepath.Join(dir, s.ServiceAccountToken.Path), seconds: 3600}
			if s.ServiceAccountToken.Audience != "" {
				t.audience = []string{s.ServiceAccountToken.Audience}
			}
			if e := s.ServiceAccountToken.ExpirationSeconds; e != nil {
				t.seconds = *e
			}
			var data []byte
			if data, err = p.token(ctx, &t); err == nil {
				files = map[string]file{s.ServiceAccountToken.Path: {data: data, mode: 0o600}}
				m.tokens = append(m.tokens, t)
			}
		default:
			err = errors.New("the process node knows secret, configMap, downwardAPI and serviceAccountToken only")
		}
		if err != nil {
			return nil, err
		}
		maps.Copy(all, files)
	}
	return all, nil
}

// project picks the files of a Secret's or ConfigMap's data.
func project(data map[string][]byte, items []corev1.KeyToPath, fallback int32, optional *bool) (map[string]file, error) {
	files := map[string]file{}
	if len(items) == 0 {
		for key, value := range data {
			files[key] = file{value, fallback}
		}
		return files, nil
	}
	for _, item := range items {
		value, ok := data[item.Key]
		if !ok {
			if optional != nil && *optional {
				continue
			}
			return nil, fmt.Errorf("key %q is missing", item.Key)
		}
		m := fallback
		if item.Mode != nil {
			m = *item.Mode
		}
		files[item.Path] = file{value, m}
	}
	return files, nil
}

func (p *pod) downward(m *mounts, items []corev1.DownwardAPIVolumeFile, fallback int32) (map[string]file, error) {
	files := map[string]file{}
	for _, item := range items {
		if item.FieldRef == nil {
			return nil, fmt.Errorf("file %q: the process node knows fieldRef only", item.Path)
		}
		value, err := p.field(m.address, item.FieldRef.FieldPath)
		if err != nil {
			return nil, err
		}
		fileMode := fallback
		if item.Mode != nil {
			fileMode = *item.Mode
		}
		files[item.Path] = file{[]byte(value), fileMode}
	}
	return files, nil
}

func mode(m *int32) int32 {
	if m == nil {
		return defaultMode
	}
	return *m
}

// materialise makes a directory hold exactly these files. Nobody but the owner can read them, whatever mode they have:
// the owner's part of it is what counts.
func materialise(dir string, files map[string]file) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, name := range sortedKeys(files) {
		if !filepath.IsLocal(name) {
			return fmt.Errorf("file %q lies outside its volume", name)
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		perm := fs.FileMode(files[name].mode) & 0o700
		if err := replace(path, files[name].data, perm); err != nil {
			return err
		}
	}
	return nil
}

func replace(path string, data []byte, perm fs.FileMode) error {
	temporary := path + ".new"
	if err := os.WriteFile(temporary, data, 0o600); err != nil {
		return err
	}
	if err := os.Chmod(temporary, perm); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

// hostPath makes a host's directory or file if its type asks for that. Where that takes rights this process doesn't
// have, as for /etc/ca-certificates, the container does without: it would find an empty directory.
func hostPath(v *corev1.HostPathVolumeSource) error {
	if v.Type == nil {
		return nil
	}
	switch *v.Type {
	case corev1.HostPathDirectoryOrCreate:
		if err := os.MkdirAll(v.Path, 0o755); err != nil && !errors.Is(err, fs.ErrPermission) { //nolint:gosec // as a kubelet makes it
			return err
		}
	case corev1.HostPathFileOrCreate:
		f, err := os.OpenFile(v.Path, os.O_CREATE, 0o600)
		if err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
		if err == nil {
			return f.Close()
		}
	case corev1.HostPathDirectory, corev1.HostPathFile, corev1.HostPathSocket:
		_, err := os.Stat(v.Path)
		return err
	}
	return nil
}

// subPaths makes the directories that a container mounts of a volume that is empty at first.
func (p *pod) subPaths(m *mounts, c *corev1.Container) error {
	for _, v := range c.VolumeMounts {
		host, ok := m.volumes[v.Name]
		if !ok {
			return fmt.Errorf("container %s mounts volume %q, which the pod doesn't have", c.Name, v.Name)
		}
		if v.SubPathExpr != "" {
			return fmt.Errorf("container %s: the process node doesn't know subPathExpr", c.Name)
		}
		if v.SubPath == "" {
			continue
		}
		if !filepath.IsLocal(v.SubPath) {
			return fmt.Errorf("container %s: subPath %q lies outside its volume", c.Name, v.SubPath)
		}
		path := filepath.Join(host, v.SubPath)
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(host, p.short+"/") {
			if err := os.MkdirAll(path, 0o700); err != nil {
				return err
			}
		}
	}
	return nil
}

// token asks for a token of the pod's service account, and notes when to ask for the next.
func (p *pod) token(ctx context.Context, t *token) ([]byte, error) {
	request, err := p.node.cfg.Client.CoreV1().ServiceAccounts(p.namespace).CreateToken(ctx, p.spec.ServiceAccountName,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			Audiences: t.audience, ExpirationSeconds: &t.seconds,
			BoundObjectRef: &authenticationv1.BoundObjectReference{
				Kind: "Pod", APIVersion: "v1", Name: p.name, UID: p.uid,
			},
		}}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	life := time.Until(request.Status.ExpirationTimestamp.Time)
	t.renew = time.Now().Add(life * 8 / 10)
	return []byte(request.Status.Token), nil
}

// refresh keeps tokens fresh until ctx ends.
func (p *pod) refresh(ctx context.Context, m *mounts) {
	for {
		next := slices.MinFunc(m.tokens, func(a, b token) int { return a.renew.Compare(b.renew) })
		if !sleep(ctx, time.Until(next.renew)) {
			return
		}
		for i := range m.tokens {
			t := &m.tokens[i]
			if time.Now().Before(t.renew) {
				continue
			}
			data, err := p.token(ctx, t)
			if err == nil {
				err = replace(t.path, data, 0o600)
			}
			if err != nil && ctx.Err() == nil {
				p.log.Warn("service account token not renewed, trying again", "error", err)
				t.renew = time.Now().Add(10 * time.Second)
			}
		}
	}
}

// A source reads Secrets and ConfigMaps of a pod's namespace, each at most once.
type source struct {
	pod     *pod
	address string
	seen    map[string]map[string][]byte
}

func (p *pod) source(m *mounts) *source {
	return &source{pod: p, address: m.address, seen: map[string]map[string][]byte{}}
}

func (s *source) secret(ctx context.Context, name string, optional *bool) (map[string][]byte, error) {
	return s.once("secret/"+name, optional, func() (map[string][]byte, error) {
		secret, err := s.pod.node.cfg.Client.CoreV1().Secrets(s.pod.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return secret.Data, nil
	})
}

func (s *source) configMap(ctx context.Context, name string, optional *bool) (map[string][]byte, error) {
	return s.once("configmap/"+name, optional, func() (map[string][]byte, error) {
		object, err := s.pod.node.cfg.Client.CoreV1().ConfigMaps(s.pod.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		data := make(map[string][]byte, len(object.Data)+len(object.BinaryData))
		for key, value := range object.Data {
			data[key] = []byte(value)
		}
		maps.Copy(data, object.BinaryData)
		return data, nil
	})
}

func (s *source) once(key string, optional *bool, get func() (map[string][]byte, error)) (map[string][]byte, error) {
	if data, ok := s.seen[key]; ok {
		return data, nil
	}
	data, err := get()
	if isMissing(err, optional) {
		data, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	s.seen[key] = data
	return data, nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
