package tenantaddon

// Types of the conditions of a TenantAddon.
const (
	// ConditionValid says whether the spec can be used and its source was fetched.
	ConditionValid = "Valid"
	// ConditionRolledOut says whether all tenants have the revision.
	ConditionRolledOut = "RolledOut"
	// ConditionReady of a TenantAddon says whether all tenants have the revision and it is ready in them; of an AddonRelease, whether it is in
	// its tenant.
	ConditionReady = "Ready"
	// ConditionInstalled of an AddonRelease says whether the objects of the revision that it may have are applied in the tenant.
	ConditionInstalled = "Installed"
)

// Reasons of the conditions.
const (
	// ReasonSucceeded is that of what is as it must be.
	ReasonSucceeded = "Succeeded"
	// ReasonPaused means that everything is left as it is.
	ReasonPaused = "Paused"
	// ReasonDeleting means that the software is being removed from tenants.
	ReasonDeleting = "Deleting"

	// ReasonInvalid means that the spec can't be used; the message names the field, the value and the way out.
	ReasonInvalid = "Invalid"
	// ReasonSourceUnavailable means that the source can't be fetched now: the server is away, refuses us, or hasn't what is asked for.
	ReasonSourceUnavailable = "SourceUnavailable"
	// ReasonSourceInvalid means that what was fetched can't be used: another digest, no chart, no manifests, or it can't be built.
	ReasonSourceInvalid = "SourceInvalid"
	// ReasonSourceChanged means that the source has other content than what tenants were to get, and the spec is the same.
	ReasonSourceChanged = "SourceChanged"
	// ReasonValuesUnavailable means that an object of valuesFrom, or its key, isn't there.
	ReasonValuesUnavailable = "ValuesUnavailable"

	// ReasonRolling means that tenants are getting the revision.
	ReasonRolling = "Rolling"
	// ReasonStopped means that too many tenants have failed: no more of them get the revision until the failures are gone or the spec changes.
	ReasonStopped = "Stopped"
	// ReasonSoaking means that a wave is ready, and the next one waits for its soak.
	ReasonSoaking = "Soaking"
	// ReasonFailing means that tenants have failed, in which it was ready or not.
	ReasonFailing = "Failing"

	// ReasonWaiting means that the tenant's turn in the rollout hasn't come yet.
	ReasonWaiting = "Waiting"
	// ReasonWaitingForAddon means that another TenantAddon isn't ready in the tenant yet.
	ReasonWaitingForAddon = "WaitingForAddon"
	// ReasonTenantUnavailable means that the tenant's API can't be reached now: it isn't ready yet, or away.
	ReasonTenantUnavailable = "TenantUnavailable"
	// ReasonTenantAsleep means that the tenant sleeps; it gets what it must have once it is awake.
	ReasonTenantAsleep = "TenantAsleep"
	// ReasonInvalidValues means that the values can't be made for this tenant, or don't match the chart's schema.
	ReasonInvalidValues = "InvalidValues"
	// ReasonRenderFailed means that the chart can't be rendered with these values.
	ReasonRenderFailed = "RenderFailed"
	// ReasonTaken means that the release or one of its objects belongs to somebody else.
	ReasonTaken = "Taken"
	// ReasonTenantWebhook means that a webhook of the tenant's own fails or refuses; the message names it.
	ReasonTenantWebhook = "TenantWebhook"
	// ReasonRefused means that the tenant's API refuses an object.
	ReasonRefused = "Refused"
	// ReasonHookFailed means that a hook of the chart has failed or didn't end in time.
	ReasonHookFailed = "HookFailed"
	// ReasonProgressing means that objects don't work yet: the message names them.
	ReasonProgressing = "Progressing"
	// ReasonUnhealthy means that objects don't work: the message names them.
	ReasonUnhealthy = "Unhealthy"
	// ReasonTimedOut means that objects didn't work in time: the message names them.
	ReasonTimedOut = "TimedOut"
	// ReasonKeepsDrifting means that somebody in the tenant changes its objects again and again.
	ReasonKeepsDrifting = "KeepsDrifting"
	// ReasonRemovalFailed means that the software can't be removed from the tenant; the message says why.
	ReasonRemovalFailed = "RemovalFailed"
)
