// Package monitoring makes the Grafana dashboards of an installation, dashboards/*.json. The alerts beside them are rules/stoker.yaml.
package monitoring
