package main

// What Kubernetes asks of volumes.

func volume() fields {
	secretName := []edit{dnsSubdomain}
	all := fields{
		"": {atMostOne("type of volume",
			"awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "configMap", "csi", "downwardAPI", "emptyDir",
			"ephemeral", "fc", "flexVolume", "flocker", "gcePersistentDisk", "gitRepo", "glusterfs", "hostPath", "image", "iscsi",
			"nfs", "persistentVolumeClaim", "photonPersistentDisk", "portworxVolume", "projected", "quobyte", "rbd", "scaleIO",
			"secret", "storageos", "vsphereVolume"),
			rule("!has(self.iscsi) || !has(self.iscsi.initiatorName) || !has(self.iscsi.targetPortal) || size(self.name) + size(self.iscsi.targetPortal) < 64", "the volume's name and iscsi.targetPortal must have less than 64 characters together, with iscsi.initiatorName")},
		"name":                            {dnsLabel},
		"awsElasticBlockStore.volumeID":   {filled},
		"awsElasticBlockStore.partition":  {between(0, 255)},
		"azureDisk":                       {rule("has(self.kind) && self.kind == 'Managed' ? self.diskURI.startsWith('/subscriptions/') : self.diskURI.startsWith('https://')", "diskURI must begin with /subscriptions/ when kind is Managed, else with https://")},
		"azureDisk.diskName":              {filled},
		"azureDisk.diskURI":               {filled, most(1024)},
		"azureDisk.cachingMode":           {oneOf("None", "ReadOnly", "ReadWrite")},
		"azureDisk.kind":                  {oneOf("Shared", "Dedicated", "Managed")},
		"azureFile.secretName":            {filled},
		"azureFile.shareName":             {filled},
		"cephfs.monitors":                 {filled},
		"cinder.volumeID":                 {filled},
		"cinder.secretRef":                {needs("name")},
		"cinder.secretRef.name":           {filled},
		"configMap":                       {needs("name")},
		"configMap.name":                  {filled},
		"configMap.defaultMode":           {fileMode},
		"csi.driver":                      {text(63, `^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?([.][A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*$`)},
		"csi.nodePublishSecretRef":        {needs("name")},
		"csi.nodePublishSecretRef.name":   secretName,
		"downwardAPI.defaultMode":         {fileMode},
		"downwardAPI.items":               {most(64)},
		"emptyDir.sizeLimit":              {amount},
		"ephemeral":                       {needs("volumeClaimTemplate")},
		"fc":                              {exactlyOne("list", "targetWWNs", "wwids"), rule("!has(self.targetWWNs) || has(self.lun)", "lun must be set with targetWWNs")},
		"fc.lun":                          {between(0, 255)},
		"fc.targetWWNs":                   {filled},
		"fc.wwids":                        {filled},
		"flexVolume.driver":               {filled},
		"flocker":                         {exactlyOne("name", "datasetName", "datasetUUID")},
		"flocker.datasetName":             {text(1024, `^[^/]+$`)},
		"flocker.datasetUUID":             {filled},
		"gcePersistentDisk.pdName":        {filled},
		"gcePersistentDisk.partition":     {between(0, 255)},
		"gitRepo.repository":              {filled},
		"gitRepo.directory":               {relative},
		"glusterfs.endpoints":             {filled},
		"glusterfs.path":                  {filled},
		"hostPath.path":                   {text(4096, stepsPattern), filled},
		"hostPath.type":                   {oneOf("", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice")},
		"image":                           {needs("reference")},
		"image.reference":                 {text(1024, trimmedPattern)},
		"image.pullPolicy":                {oneOf("", "Always", "IfNotPresent", "Never")},
		"iscsi":                           {rule("!(has(self.chapAuthDiscovery) && self.chapAuthDiscovery || has(self.chapAuthSession) && self.chapAuthSession) || has(self.secretRef)", "secretRef must be set with CHAP authentication")},
		"iscsi.targetPortal":              {filled},
		"iscsi.iqn":                       {initiator},
		"iscsi.initiatorName":             {initiator},
		"iscsi.lun":                       {between(0, 255)},
		"nfs.server":                      {filled},
		"nfs.path":                        {text(4096, `^/`)},
		"persistentVolumeClaim.claimName": {filled},
		"photonPersistentDisk.pdID":       {filled},
		"portworxVolume.volumeID":         {filled},
		"projected.defaultMode":           {fileMode},
		"quobyte.registry":                {text(1024, `^[^:,[:space:]]*:[^:,[:space:]]*(,[^:,[:space:]]*:[^:,[:space:]]*)*$`)},
		"quobyte.tenant":                  {most(64)},
		"quobyte.volume":                  {filled},
		"rbd.monitors":                    {filled},
		"rbd.image":                       {filled},
		"scaleIO":                         {needs("volumeName")},
		"scaleIO.gateway":                 {filled},
		"scaleIO.system":                  {filled},
		"scaleIO.volumeName":              {filled},
		"secret":                          {needs("secretName")},
		"secret.secretName":               {filled},
		"secret.defaultMode":              {fileMode},
		"storageos":                       {needs("volumeName")},
		"storageos.volumeName":            {dnsLabel},
		"storageos.volumeNamespace":       {optional(dnsLabel)},
		"storageos.secretRef":             {needs("name")},
		"storageos.secretRef.name":        {filled},
		"vsphereVolume.volumePath":        {filled},
	}
	return join(all,
		under("configMap.items", keys()),
		under("secret.items", keys()),
		under("downwardAPI.items[]", downwardFile()),
		under("ephemeral.volumeClaimTemplate.spec", claim()),
		under("projected.sources", projection()),
	)
}

// initiator is the name of an iSCSI target or initiator.
var initiator = text(223, `^(iqn[.][0-9]{4}-[0-9]{2}[.][A-Za-z0-9]+([-.][A-Za-z0-9]+)*(:[^[:space:]]+)?|eui[.][[:alnum:]]{16}|naa[.][[:alnum:]]{32})$`)

// keys of a ConfigMap or Secret as files.
func keys() fields {
	return fields{
		"":       {most(64)},
		"[].key": {filled},
		"[].path": {
			local,
		},
		"[].mode": {fileMode},
	}
}

func downwardFile() fields {
	return join(
		fields{
			"":     {exactlyOne("source", "fieldRef", "resourceFieldRef"), rule("!has(self.resourceFieldRef) || has(self.resourceFieldRef.containerName) && self.resourceFieldRef.containerName != ''", "resourceFieldRef of a volume must have containerName")},
			"path": {local},
			"mode": {fileMode},
		},
		under("fieldRef", fieldRef(`metadata[.](name|namespace|labels|annotations|uid)`)),
		under("resourceFieldRef", resourceFieldRef()),
	)
}

func projection() fields {
	return join(
		fields{
			"":                     {most(32)},
			"[]":                   {atMostOne("source", "clusterTrustBundle", "configMap", "downwardAPI", "podCertificate", "secret", "serviceAccountToken")},
			"[].secret":            {needs("name")},
			"[].secret.name":       {filled},
			"[].configMap":         {needs("name")},
			"[].configMap.name":    {filled},
			"[].downwardAPI.items": {most(64)},
			"[].serviceAccountToken.expirationSeconds": {between(600, 1<<32)},
			"[].serviceAccountToken.path":              {local},
			"[].clusterTrustBundle":                    {exactlyOne("reference", "name", "signerName"), rule("!has(self.name) || !has(self.labelSelector)", "labelSelector cannot be set beside name")},
			"[].clusterTrustBundle.name":               {text(253, `^([a-z0-9]([-a-z0-9.]*[a-z0-9])?:)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)},
			"[].clusterTrustBundle.signerName":         {signer},
			"[].clusterTrustBundle.path":               {local},
			"[].podCertificate":                        {rule("has(self.credentialBundlePath) || has(self.keyPath) || has(self.certificateChainPath)", "must have at least one of credentialBundlePath, keyPath and certificateChainPath")},
			"[].podCertificate.signerName":             {signer},
			"[].podCertificate.keyType":                {oneOf("RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")},
			"[].podCertificate.maxExpirationSeconds":   {between(3600, 86400)},
			"[].podCertificate.credentialBundlePath":   {local},
			"[].podCertificate.keyPath":                {local},
			"[].podCertificate.certificateChainPath":   {local},
		},
		under("[].secret.items", keys()),
		under("[].configMap.items", keys()),
		under("[].downwardAPI.items[]", downwardFile()),
		under("[].clusterTrustBundle.labelSelector", labelSelector()),
	)
}

// signer is the name of a signer of certificates.
var signer = text(571, `^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)+/[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// claim is the template of a volume claim.
func claim() fields {
	group := optional(dnsSubdomain)
	return join(
		fields{
			"": {
				rule("!has(self.accessModes) || size(self.accessModes) < 2 || !('ReadWriteOncePod' in self.accessModes)", "ReadWriteOncePod cannot be combined with other access modes"),
				rule("!has(self.dataSource) || !has(self.dataSourceRef) || (!has(self.dataSourceRef.namespace) || self.dataSourceRef.namespace == '') && self.dataSource.kind == self.dataSourceRef.kind && self.dataSource.name == self.dataSourceRef.name && (has(self.dataSource.apiGroup) ? self.dataSource.apiGroup : '') == (has(self.dataSourceRef.apiGroup) ? self.dataSourceRef.apiGroup : '')", "dataSource and dataSourceRef must be the same"),
				needs("accessModes", "resources"),
			},
			"accessModes":               {filled, most(4)},
			"accessModes[]":             {oneOf("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")},
			"resources":                 {needs("requests"), rule("'storage' in self.requests && (!isQuantity(string(self.requests['storage'])) || quantity(string(self.requests['storage'])).isGreaterThan(quantity('0')))", "requests must have storage, more than 0")},
			"resources.requests":        {most(4)},
			"resources.requests{}":      {amount},
			"resources.limits":          {most(4)},
			"resources.limits{}":        {amount},
			"storageClassName":          {optional(dnsSubdomain)},
			"volumeAttributesClassName": {optional(dnsSubdomain)},
			"volumeMode":                {oneOf("Filesystem", "Block")},
			"dataSource":                {rule("has(self.apiGroup) && self.apiGroup != '' || self.kind == 'PersistentVolumeClaim'", "kind must be PersistentVolumeClaim without apiGroup")},
			"dataSource.apiGroup":       {group},
			"dataSource.kind":           {filled, most(253)},
			"dataSource.name":           {filled, most(253)},
			"dataSourceRef":             {rule("has(self.apiGroup) && self.apiGroup != '' || self.kind == 'PersistentVolumeClaim'", "kind must be PersistentVolumeClaim without apiGroup")},
			"dataSourceRef.apiGroup":    {group},
			"dataSourceRef.kind":        {filled, most(253)},
			"dataSourceRef.name":        {filled, most(253)},
			"dataSourceRef.namespace":   {optional(dnsLabel)},
		},
		under("selector", labelSelector()),
	)
}
