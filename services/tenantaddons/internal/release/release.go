// Package release keeps a Helm release in a tenant: it installs, upgrades, repairs, watches and uninstalls it.
package release
