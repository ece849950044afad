module github.com/stoker-k8s/stoker/deployments/monitoring

go 1.26.0

require (
	github.com/stoker-k8s/stoker/deployments/local v0.0.0
	sigs.k8s.io/yaml v1.6.0
)

require go.yaml.in/yaml/v2 v2.4.3 // indirect

replace github.com/stoker-k8s/stoker/deployments/local => ../local
