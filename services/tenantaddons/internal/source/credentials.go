package source

import (
	"context"
	"crypto/x509"

	"oras.land/oras-go/v2/registry/remote/auth"
	orascredentials "oras.land/oras-go/v2/registry/remote/credentials"
)

// Keys of the Secret of spec.*.credentials.
const (
	keyUsername     = "username"
	keyPassword     = "password"
	keyDockerConfig = ".dockerconfigjson"
	keyCA           = "ca.crt"
)

// credentials are what is shown to the source's own server, and whose certificates it may have.
type credentials struct {
	// named says that there is a user, a password or a token.
	named bool
	login auth.Credential
	// ca are authorities beside the system's, as PEM.
	ca []byte
}

// parseCredentials reads the data of a Secret. host is the registry's for an OCI source, and empty for others. Its errors name keys, never values.
func parseCredentials(ctx context.Context, field string, data map[string][]byte, host string) (credentials, error) {
	c := credentials{ca: data[keyCA]}
	if len(c.ca) > 0 && !x509.NewCertPool().AppendCertsFromPEM(c.ca) {
		return c, invalid(field, "the Secret's key %s holds no certificate in PEM", keyCA)
	}
	user, password := string(data[keyUsername]), string(data[keyPassword])
	switch {
	case user != "" && password != "":
		c.login = auth.Credential{Username: user, Password: password}
	case user != "" || password != "":
		return c, invalid(field, "the Secret must have both of the keys %s and %s, or neither", keyUsername, keyPassword)
	case len(data[keyDockerConfig]) > 0:
		if host == "" {
			return c, invalid(field, "the Secret's key %s is for an OCI registry; use the keys %s and %s", keyDockerConfig, keyUsername, keyPassword)
		}
		var err error
		if c.login, err = dockerLogin(ctx, field, data[keyDockerConfig], host); err != nil {
			return c, err
		}
	case len(c.ca) == 0:
		return c, invalid(field, "the Secret has none of the keys %s and %s, %s, %s", keyUsername, keyPassword, keyDockerConfig, keyCA)
	}
	c.named = c.login != auth.EmptyCredential
	return c, nil
}

// dockerLogin is the entry of the registry host.
func dockerLogin(ctx context.Context, field string, config []byte, host string) (auth.Credential, error) {
	store, err := orascredentials.NewMemoryStoreFromDockerConfig(config)
	if err != nil {
		// err may quote what is in it.
		return auth.EmptyCredential, invalid(field, "the Secret's key %s isn't a valid Docker configuration", keyDockerConfig)
	}
	hosts := []string{host}
	if host == "docker.io" || host == "registry-1.docker.io" || host == "index.docker.io" {
		hosts = []string{"https://index.docker.io/v1/", "index.docker.io", "docker.io", "registry-1.docker.io"}
	}
	for _, h := range hosts {
		if login, err := store.Get(ctx, h); err == nil && login != auth.EmptyCredential {
			return login, nil
		}
	}
	return auth.EmptyCredential, invalid(field, "the Secret's key %s has no entry for the registry %q", keyDockerConfig, host)
}
