// Package node is the process node: a Kubernetes node that runs the containers of its pods as child processes, without
// root, without a container runtime and without a network of its own.
//
// A container here has no mount, network or process namespace. So that pods written for a real cluster run unchanged,
// the node translates what a container is told (see translation, a pure function of pod and address):
//
//   - Every pod has a loopback address of its own, 127.N.y.z, which is its status.podIP. Ports of two pods never clash.
//   - Paths below a volume mount, wherever they occur in command, args and env values, become paths on the host. The
//     longest mountPath wins. A path that is below no mount is the host's own.
//   - A host in an argument that means the pod, to listen on or to call (0.0.0.0, ::, 127.0.0.1, ::1, localhost; alone
//     or after = , @ or /), becomes the pod's address. Programs that listen on all addresses when told nothing
//     (kube-apiserver, kube-controller-manager, kube-scheduler) are given --bind-address, and kine the flags of its own.
//   - A kubeconfig in a mounted Secret or ConfigMap (a key that ends in .conf or contains "kubeconfig") whose server is
//     https://127.0.0.1:port or https://localhost:port is written with the pod's address instead, and with
//     tls-server-name set to the host it named, because the server's certificate is for that and not for the address.
//
// Files of volumes are never readable by other users of the machine, whatever mode the pod asks for.
//
// What a pod can't have here: other programs than those of package images and a shell (sh), host ports, resource limits, security
// contexts, exec and attach, lifecycle hooks, ephemeral containers, persistent volumes, Secrets and ConfigMaps that
// change while mounted (a new pod sees the new content), ClusterIPs and cluster DNS.
package node
