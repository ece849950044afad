// The container of kine, which serves etcd's API to the API server and stores the data in a database of another kind. Pure.

package workload

import (
	"maps"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/api/v1alpha1"
)

// DefaultKineImage is the image of kine unless the service or the tenant says otherwise.
const DefaultKineImage = "docker.io/rancher/kine:v0.16.4"

// Where kine's things are in its container and the API server's.
const (
	dirKineSocket    = "/uds"
	dirKineCerts     = "/certs"
	kineSocket       = "unix://" + dirKineSocket + "/kine"
	kineMovingSocket = "unix://" + dirKineSocket + "/kine-moving"
)

const (
	// portKine is etcd's. Nothing listens there, for kine serves the socket alone; Kamaji's pods name it.
	portKine = 2379
	// portKineMetrics is where kine listens for Prometheus unless its flags say otherwise.
	portKineMetrics = 8080
	// portKineMoving is that of a second kine in the pod.
	portKineMoving      = 8081
	flagKineMetricsBind = "metrics-bind-address"
)

// Either tells kine where the database is; the flag wins.
const (
	flagKineEndpoint = "endpoint"
	envKineEndpoint  = "KINE_ENDPOINT"
)

// kineDriver is what kine has to be told of a kind of database.
type kineDriver struct {
	// endpoint is what it connects to. The variables are the keys of <t>-datastore-config; what they hold needs no escaping in a
	// URL, which the datastore service sees to.
	endpoint string
	// secret says that the endpoint holds the password. Then kine is told it by its environment, which only its own user and root
	// can read; its arguments are in the process list of the node. A kine that doesn't know the variable (before v0.14) would
	// store the data in its container; but it ends, for it doesn't know datastore-connection-max-idle-time either.
	secret bool
	// flags are its own defaults.
	flags flags
}

// kineDrivers has a row for each driver of a DataStore that tenants reach through kine. One that speaks etcd's API itself is missing.
var kineDrivers = map[string]kineDriver{
	string(v1alpha1.DriverPostgreSQL): {
		"postgres://" + kineUser + "@" + variable(name.KeyDBConnectionString) + "/" + variable(name.KeyDBSchema), true, sqlConnections,
	},
	string(v1alpha1.DriverMySQL): {
		"mysql://" + kineUser + "@tcp(" + variable(name.KeyDBConnectionString) + ")/" + variable(name.KeyDBSchema), true, sqlConnections,
	},
	// noEmbed: kine would else run a NATS server of its own. It makes sure of its bucket, and ends if that has other replicas.
	string(v1alpha1.DriverNATS): {endpoint: "nats://?contextFile=" + path.Join(dirKineCerts, name.KeyDatastoreContext) +
		"&bucket=" + variable(name.KeyDBSchema) + "&replicas=" + variable(name.KeyDBReplicas) + "&noEmbed"},
}

// sqlConnections limit kine's connections to an SQL server, which has many tenants. Without, kine opens one for each
// request under way, so that a hundred at once take a small server from everybody, and keeps 20 for two minutes. As many
// may be idle as there may be: to open another soon after costs more than what it is for (test/bench/datastore).
var sqlConnections = flags{
	"datastore-max-open-connections": "10", "datastore-max-idle-connections": "10", "datastore-connection-max-idle-time": "30s",
}

var kineUser = variable(name.KeyDBUser) + ":" + variable(name.KeyDBPassword)

// variable is how a container's arguments, and its other variables, name one of its environment.
func variable(name string) string { return "$(" + name + ")" }

// kineOf is one kine of a pod: which database it is for, and by which Secrets it gets there.
type kineOf struct {
	container, driver, config, certificate, certs, socket string
	// keys are those of the Secret of the certificate.
	keys []string
	// metrics is the port of its metrics, where its flags don't say it; 0 for its own default.
	metrics int32
}

// kines are those of the pod: none for a database that speaks etcd's API itself. A kine without a row in kineDrivers would have no endpoint,
// and then stores the data in its container.
func (in Input) kines() (all []kineOf) {
	tenant := in.Tenant.Name
	if needsKine(in.Datastore.Driver) {
		all = append(all, kineOf{
			container: name.ContainerKine, driver: in.Datastore.Driver, config: name.DatastoreConfig(tenant), socket: kineSocket,
			certificate: name.DatastoreCertificate(tenant), certs: name.VolumeKineCerts, keys: in.Datastore.Certificate.Keys,
		})
	}
	if m := in.Datastore.Move; m.Gated() && needsKine(m.Driver) {
		all = append(all, kineOf{
			container: name.ContainerKineMoving, driver: m.Driver, config: name.MovingDatastoreConfig(tenant), socket: kineMovingSocket,
			certificate: name.MovingDatastoreCertificate(tenant), certs: name.VolumeKineMovingCerts, keys: m.Certificate.Keys, metrics: portKineMoving,
		})
	}
	return all
}

// needsKine reports whether a database speaks something else than etcd's API.
func needsKine(driver string) bool {
	_, needs := kineDrivers[driver]
	return needs
}

// hasSocket reports whether the API server reaches its data by a socket in the pod: that of a kine or of a gate.
func (in Input) hasSocket() bool { return needsKine(in.Datastore.Driver) || in.hasGate() }

// kine returns the container. It is an init container that goes on running: kubelet starts the API server when kine has
// reached the database, and ends kine only after the API server, which has requests to finish, has ended. As one of the
// containers, where Kamaji has it, it would end with the first signal and take those requests with it.
func (in Input) kine(k kineOf) corev1.Container {
	spec := &in.Tenant.Spec.ControlPlane.Deployment
	args := in.kineArgs(k)
	c := corev1.Container{
		Name: k.container, Image: in.kineImage(), ImagePullPolicy: corev1.PullIfNotPresent,
		Command: []string{"/bin/kine"}, Args: args,
		RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
		EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: k.config},
		}}},
		VolumeMounts: []corev1.VolumeMount{{Name: name.VolumeKineUDS, MountPath: dirKineSocket}},
	}
	if k.container == name.ContainerKine {
		c.Ports = []corev1.ContainerPort{{Name: name.PortKine, ContainerPort: portKine, Protocol: corev1.ProtocolTCP}}
	}
	if database := kineDrivers[k.driver]; database.secret {
		c.Env = []corev1.EnvVar{{Name: envKineEndpoint, Value: database.endpoint}}
	}
	if len(k.keys) > 0 {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: k.certs, MountPath: dirKineCerts, ReadOnly: true})
	}
	// kine has no health endpoint, but it opens this port once it has reached the database and serves the socket. What
	// happens later shows in the API server's own probes, which go through kine.
	if port := metricsPort(args); port != 0 {
		c.StartupProbe = probeOf(corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(port)}}, startup)
	}
	in.customize(&c, customization{resources: value(spec.Resources).Kine, security: value(spec.ContainerSecurityContexts).Kine})
	return c
}

// kineImage is that of an additional container named kine, if there is one, as with Kamaji.
func (in Input) kineImage() string {
	for _, c := range in.Tenant.Spec.ControlPlane.Deployment.AdditionalContainers {
		if c.Name == name.ContainerKine && c.Image != "" {
			return c.Image
		}
	}
	if in.KineImage == "" {
		return DefaultKineImage
	}
	return in.KineImage
}

// additional are the user's containers that run: one named kine only says which image kine has.
func (in Input) additional() []corev1.Container {
	all := in.Tenant.Spec.ControlPlane.Deployment.AdditionalContainers
	return slices.DeleteFunc(slices.Clone(all), func(c corev1.Container) bool { return c.Name == name.ContainerKine })
}

func (in Input) kineArgs(k kineOf) []string {
	database := kineDrivers[k.driver]
	defaults := flags{}
	maps.Copy(defaults, database.flags)
	for key, flag := range map[string]string{
		name.KeyDatastoreCACert: "ca-file", name.KeyDatastoreCert: "cert-file", name.KeyDatastoreKey: "key-file",
	} {
		if slices.Contains(k.keys, key) {
			defaults[flag] = path.Join(dirKineCerts, key)
		}
	}
	user := slices.Clone(in.extraArgs().Kine)
	for i, arg := range user {
		// To kine, one dash is as good as two.
		if strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "--") {
			user[i] = "-" + arg
		}
	}
	managed := flags{flagKineEndpoint: database.endpoint, "listen-address": k.socket}
	if k.metrics != 0 {
		managed[flagKineMetricsBind] = ":" + strconv.Itoa(int(k.metrics))
	}
	user = without(user, managed)
	if database.secret {
		delete(managed, flagKineEndpoint)
	}
	return layer(managed, defaults, user)
}

// metricsPort is where kine listens once it works; 0 if its flags keep it from that, or say where in a way unknown here.
func metricsPort(args []string) int32 {
	address := ":" + strconv.Itoa(portKineMetrics)
	for i, arg := range args {
		flag, inline := flagName(arg)
		switch {
		case flag != flagKineMetricsBind:
		case inline:
			_, address, _ = strings.Cut(arg, "=")
		case i+1 < len(args):
			address = args[i+1]
		}
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return 0
	}
	return int32(n)
}

// kineVolumes are what the connections to databases are made with. kine takes files as they are, of whatever mode and owner: Kamaji's init
// container, which copies them to have others, has no use.
func (in Input) kineVolumes() (volumes []corev1.Volume) {
	for _, k := range in.kines() {
		if len(k.keys) > 0 {
			volumes = append(volumes, secretVolume(k.certs, k.certificate, k.keys...))
		}
	}
	return volumes
}

// secretVolume is a volume with keys of a Secret as files of the same names.
func secretVolume(volume, secret string, keys ...string) corev1.Volume {
	return corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: secret, DefaultMode: new(mode), Items: items("", keys...)},
	}}
}

// socketVolume is the directory of the sockets by which API servers reach a kine or a gate.
func socketVolume() corev1.Volume {
	return corev1.Volume{Name: name.VolumeKineUDS, VolumeSource: corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory},
	}}
}
