package reason

// Entry is a row of the table.
type Entry struct {
	// Reason is the constant.
	Reason string
	// Meaning is one sentence: what is the case.
	Meaning string
	// Do says what a person can do; empty when it ends by itself and nothing need be done.
	Do string
	// Run is the kubectl command that shows more, without "kubectl"; empty for none. {namespace}, {name} and {selector} stand for
	// the tenant's namespace and name and the label selector of its pods.
	Run string
}

// Find returns the row of a reason.
func Find(reason string) (Entry, bool) {
	for _, e := range Table() {
		if e.Reason == reason {
			return e, true
		}
	}
	return Entry{}, false
}

// Table lists every reason that has a meaning of its own, waits first, then failures, then what keeps pods from being ready.
func Table() []Entry {
	const logs = "-n {namespace} logs -l {selector} --all-containers --prefix --ignore-errors --tail=20"
	image := "An image can't be had: is there such a version (spec.kubernetes.version), and do nodes reach the registry " +
		"(spec.controlPlane.deployment.registrySettings)? Put it right and apply the tenant again; a registry that comes back is noticed."
	tryAgain := "It tries again by itself; if it doesn't end, put right what the message names."
	again := "Put right what the message names, then apply the tenant again."
	return []Entry{
		{DataStoreNotChosen, "the tenant names no DataStore, and none could be chosen for it", "Name one (spec.dataStore), or create one that fits.", ""},
		{PauseUnreadable, "the end of the pause, an annotation, is no time", "Write the annotation anew, in RFC 3339, or resume the tenant.", ""},
		{KeysNotIssued, "keys and certificates of this generation are not all made", "", ""},
		{AccountNotProvisioned, "user and schema in the DataStore are not made", "", ""},
		{EndpointUnknown, "it isn't known yet where the tenant's API is reached", "", ""},
		{AddressPending, "the Service has no address yet", "If it lasts: does the cluster have a load balancer, and an address left?", "-n {namespace} describe service {name}"},
		{RolloutSlot, "other tenants' pods are being rolled out; this one's turn comes", "", ""},
		{ObjectDenied, "the management cluster denies an object; it is applied again now and then", "Put right what the message names.", ""},
		{PodsNotReady, "the control plane's pods are not ready", "What the pods wait for, if it lasts:", "-n {namespace} describe pods -l {selector}"},
		{PodsEnding, "the control plane's pods have not ended", "If it lasts:", "-n {namespace} get pods -l {selector} -o wide"},
		{ControlPlaneNotReady, "no pod of the control plane runs this generation and is ready", "", ""},
		{Asleep, "the tenant sleeps (spec.controlPlane.deployment.replicas is 0)", "", ""},
		{EarlierRemoval, "the service before has not removed its part of the tenant", "", ""},
		{StatesLost, "what the services knew is lost; they look at the tenant again", "", ""},

		{Unavailable, "a dependency doesn't answer", tryAgain, ""},
		{StepFailed, "a step failed for no known reason", tryAgain, ""},
		{RetriesExhausted, "a step failed for no known reason too often", again, ""},
		{TooManyDeliveries, "every replica that worked on an event ended before it was done", again, ""},
		{Panic, "the service's code panicked: a defect of Stoker", "Report it with the service's log, then apply the tenant again.", ""},
		{InvalidState, "a state in the tenant's bucket can't be read", again, ""},
		{InvalidFact, "a fact's payload can't be read", again, ""},
		{TooLarge, "an event is larger than what may be published", again, ""},
		{InvalidInbox, "a command's replyto is no inbox", "Send the command again with an inbox (_INBOX.…) or none.", ""},
		{Rejected, "a command was refused, and its sender could not be told", "Send it again as its cause says, with replyto.", ""},

		{ImagePull, "an image can't be pulled", image, ""},
		{ImageName, "an image's name is not valid", image, ""},
		{ImageNeverPull, "an image is not on the node and may not be pulled", image, ""},
		{
			Unschedulable, "no node takes the pods",
			"No node takes the pods: make room, or change resources, nodeSelector, affinity or tolerations under spec.controlPlane.deployment.",
			"get nodes",
		},
		{
			OutOfMemory, "a container needs more memory than its limit",
			"A container needs more memory: raise its limit under spec.controlPlane.deployment.resources and apply the tenant again.", "",
		},
		{CrashLoop, "a container crashes again and again", "A container crashes; what it said last:", logs + " --previous"},
		{Crashes, "a container crashed", "A container crashes; what it said last:", logs + " --previous"},
		{ProbesFail, "a container runs and its probes fail", "A container runs, but doesn't answer; what it says:", logs},
		{NoPods, "no pod has been created yet", "What keeps them from being created, if it lasts:", "-n {namespace} describe deployment {name}"},
		{ContainerCreating, "images, volumes or network of a container are not there yet", "If it lasts:", "-n {namespace} describe pods -l {selector}"},
		{PodInitializing, "a container waits for the pod's init containers", "If it lasts:", "-n {namespace} describe pods -l {selector}"},
		{PodPending, "no node has taken the pod up yet", "If it lasts:", "-n {namespace} describe pods -l {selector}"},
		{PodFailed, "a pod failed", "What the pods say:", "-n {namespace} describe pods -l {selector}"},
		{DeadlineExceeded, "a rollout takes longer than it should", "What the pods wait for:", "-n {namespace} describe pods -l {selector}"},
		{ReplicaCreationError, "a pod can't be created", "Put right what the message names: a quota, a policy, a webhook.", "-n {namespace} describe replicasets -l {selector}"},

		{InvalidAddons, "the objects inside the tenant can't be made from its spec", again, ""},
	}
}
