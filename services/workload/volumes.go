// Volumes of the control plane's pods, and where containers that trust the tenant's CA mount it. Pure.

package workload

import (
	"path"

	corev1 "k8s.io/api/core/v1"

	"github.com/stoker-k8s/stoker/pkg/api/name"
)

// caDirs are the directories in which programs look for certificate authorities they trust; the tenant's is in each.
var caDirs = []struct{ volume, path string }{
	{name.VolumeEtcCACertificates, "/etc/ca-certificates"},
	{name.VolumeUsrShareCACertificates, "/usr/share/ca-certificates"},
	{name.VolumeUsrLocalShareCACertificates, "/usr/local/share/ca-certificates"},
}

func caMounts() []corev1.VolumeMount {
	var mounts []corev1.VolumeMount
	for _, d := range caDirs {
		mounts = append(mounts, corev1.VolumeMount{Name: d.volume, MountPath: d.path, ReadOnly: true})
	}
	return mounts
}

// mode of the files in volumes: containers may run as any user, and nobody else sees them.
const mode int32 = 0o644

func (in Input) volumes() []corev1.Volume {
	tenant := in.Tenant.Name
	volumes := []corev1.Volume{{
		Name: name.VolumePKI,
		// Key by key: the key of the front proxy's CA, for one, is needed by none of the containers.
		VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: new(mode), Sources: []corev1.VolumeProjection{
			projection(name.APIServerCertificate(tenant), "", name.KeyAPIServerCert, name.KeyAPIServerKey),
			projection(name.CA(tenant), "", name.KeyCACert, name.KeyCAKey),
			projection(name.APIServerKubeletClientCertificate(tenant), "", name.KeyAPIServerKubeletClientCert, name.KeyAPIServerKubeletClientKey),
			projection(name.FrontProxyCA(tenant), "", name.KeyFrontProxyCACert),
			projection(name.FrontProxyClientCertificate(tenant), "", name.KeyFrontProxyClientCert, name.KeyFrontProxyClientKey),
			projection(name.ServiceAccountKeys(tenant), "", name.KeyServiceAccountPublic, name.KeyServiceAccountPrivate),
		}}},
	}}
	if !in.hasSocket() {
		etcd := projection(name.DatastoreCertificate(tenant), dirEtcd, name.KeyDatastoreCACert, name.KeyDatastoreCert, name.KeyDatastoreKey)
		volumes[0].Projected.Sources = append(volumes[0].Projected.Sources, etcd)
	}
	secret := func(volume, secret string, keys ...string) {
		volumes = append(volumes, secretVolume(volume, secret, keys...))
	}
	for _, d := range caDirs {
		// Kamaji mounts the whole Secret, with the key that signs, where only the certificate is of use.
		secret(d.volume, name.CA(tenant), name.KeyCACert)
	}
	secret(name.VolumeSchedulerKubeconfig, name.SchedulerKubeconfig(tenant), name.KeySchedulerConf)
	secret(name.VolumeControllerManagerKubeconfig, name.ControllerManagerKubeconfig(tenant), name.KeyControllerManagerConf)
	if in.hasSocket() {
		volumes = append(append(volumes, socketVolume()), in.kineVolumes()...)
	}
	volumes = append(volumes, in.gateVolumes()...)
	if in.hasTunnel() {
		volumes = append(volumes, in.konnectivityVolumes()...)
	}
	if in.encrypts() {
		volumes = append(volumes, in.encryptionVolume())
	}
	settings, _ := in.settingsVolumes()
	volumes = append(volumes, settings...)
	return volumes
}

// projection are keys of a Secret as files of the same names below a directory of a projected volume.
func projection(secret, dir string, keys ...string) corev1.VolumeProjection {
	return corev1.VolumeProjection{Secret: &corev1.SecretProjection{
		LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Items: items(dir, keys...),
	}}
}

// items are keys of a Secret as files of the same names below a directory.
func items(dir string, keys ...string) []corev1.KeyToPath {
	var out []corev1.KeyToPath
	for _, key := range keys {
		out = append(out, corev1.KeyToPath{Key: key, Path: path.Join(dir, key)})
	}
	return out
}
