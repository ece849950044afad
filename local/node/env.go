package node

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// An environment is what a container finds in its environment, in order.
type environment struct {
	names  []string
	values map[string]string
	fixed  map[string]bool // not to be translated: our own
}

func (e *environment) set(name, value string) {
	if _, ok := e.values[name]; !ok {
		e.names = append(e.names, name)
	}
	e.values[name] = value
}

// preset gives a variable that the container doesn't set itself a value of the host.
func (e *environment) preset(name, value string) {
	if _, ok := e.values[name]; !ok {
		e.set(name, value)
		e.fixed[name] = true
	}
}

func (e *environment) get(name string) (string, bool) {
	value, ok := e.values[name]
	return value, ok
}

// list is the environment in the form processes take, with values translated.
func (e *environment) list(translate func(string) string) []string {
	out := make([]string, 0, len(e.names))
	for _, name := range e.names {
		value := e.values[name]
		if !e.fixed[name] {
			value = translate(value)
		}
		out = append(out, name+"="+value)
	}
	return out
}

// environment resolves a container's env and envFrom.
func (c *container) environment(ctx context.Context, m *mounts) (*environment, error) {
	e := &environment{values: map[string]string{}, fixed: map[string]bool{}}
	src := c.pod.source(m)
	for _, from := range c.spec.EnvFrom {
		switch {
		case from.SecretRef != nil:
			data, err := src.secret(ctx, from.SecretRef.Name, from.SecretRef.Optional)
			if err != nil {
				return nil, err
			}
			for _, key := range sortedKeys(data) {
				e.set(from.Prefix+key, string(data[key]))
			}
		case from.ConfigMapRef != nil:
			data, err := src.configMap(ctx, from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
			if err != nil {
				return nil, err
			}
			for _, key := range sortedKeys(data) {
				e.set(from.Prefix+key, string(data[key]))
			}
		}
	}
	for _, v := range c.spec.Env {
		value, ok, err := c.value(ctx, src, e, v)
		if err != nil {
			return nil, fmt.Errorf("env %s: %w", v.Name, err)
		}
		if ok {
			e.set(v.Name, value)
		}
	}
	return e, nil
}

// value is the value of one variable, if it has any.
func (c *container) value(ctx context.Context, src *source, e *environment, v corev1.EnvVar) (string, bool, error) {
	from := v.ValueFrom
	if from == nil {
		return expand(v.Value, e.get), true, nil
	}
	pick := func(data map[string][]byte, key string, optional *bool, err error) (string, bool, error) {
		if err != nil {
			return "", false, err
		}
		value, ok := data[key]
		if !ok && (optional == nil || !*optional) {
			return "", false, fmt.Errorf("key %q is missing", key)
		}
		return string(value), ok, nil
	}
	switch {
	case from.FieldRef != nil:
		value, err := c.pod.field(src.address, from.FieldRef.FieldPath)
		return value, true, err
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		data, err := src.secret(ctx, ref.Name, ref.Optional)
		return pick(data, ref.Key, ref.Optional, err)
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		data, err := src.configMap(ctx, ref.Name, ref.Optional)
		return pick(data, ref.Key, ref.Optional, err)
	}
	return "", false, fmt.Errorf("the process node knows value, fieldRef, secretKeyRef and configMapKeyRef only")
}

// field is one field of the pod, as the downward API names it.
func (p *pod) field(address, path string) (string, error) {
	object, _ := p.latest()
	if name, key, ok := strings.Cut(path, "['"); ok && strings.HasSuffix(key, "']") {
		key = strings.TrimSuffix(key, "']")
		switch name {
		case "metadata.labels":
			return object.Labels[key], nil
		case "metadata.annotations":
			return object.Annotations[key], nil
		}
	}
	switch path {
	case "metadata.name":
		return object.Name, nil
	case "metadata.namespace":
		return object.Namespace, nil
	case "metadata.uid":
		return string(object.UID), nil
	case "metadata.labels":
		return formatMap(object.Labels), nil
	case "metadata.annotations":
		return formatMap(object.Annotations), nil
	case "spec.nodeName":
		return p.node.cfg.Name, nil
	case "spec.serviceAccountName":
		return object.Spec.ServiceAccountName, nil
	case "status.hostIP", "status.hostIPs":
		return p.node.cfg.Address.String(), nil
	case "status.podIP", "status.podIPs":
		return address, nil
	}
	return "", fmt.Errorf("the process node doesn't know field %q", path)
}

// formatMap writes labels or annotations as the downward API does.
func formatMap(m map[string]string) string {
	lines := make([]string, 0, len(m))
	for _, key := range sortedKeys(m) {
		lines = append(lines, fmt.Sprintf("%s=%q", key, m[key]))
	}
	return strings.Join(lines, "\n")
}

// expand replaces $(NAME) by the value of NAME, where there is one; $$ is a $ that begins nothing.
func expand(s string, get func(string) (string, bool)) string {
	if !strings.Contains(s, "$") {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '$' || i+1 == len(s) {
			out.WriteByte(s[i])
			continue
		}
		switch s[i+1] {
		case '$':
			out.WriteByte('$')
			i++
		case '(':
			end := strings.IndexByte(s[i:], ')')
			if end < 0 {
				out.WriteString(s[i:])
				return out.String()
			}
			if value, ok := get(s[i+2 : i+end]); ok {
				out.WriteString(value)
			} else {
				out.WriteString(s[i : i+end+1])
			}
			i += end
		default:
			out.WriteByte('$')
		}
	}
	return out.String()
}

// isMissing tells whether an optional reference may be passed over.
func isMissing(err error, optional *bool) bool {
	return optional != nil && *optional && apierrors.IsNotFound(err)
}
