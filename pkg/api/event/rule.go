package event

// Rules of refusals (FieldError.Rule) that Stoker's own checks break; those of the schema and of admission policies come in the words
// of Kubernetes, of which the first seven are, too.
const (
	RuleInvalid      = "Invalid"
	RuleRequired     = "Required"
	RuleDuplicate    = "Duplicate"
	RuleForbidden    = "Forbidden"
	RuleNotFound     = "NotFound"
	RuleNotSupported = "NotSupported"
	RuleInternal     = "InternalError"
	RuleTooLong      = "TooLong"
	RuleTooMany      = "TooMany"
	RuleTypeInvalid  = "TypeInvalid"
	RuleTooLarge     = "TooLarge"
	RuleUnknown      = "Unknown"
	RuleDeleting     = "Deleting"
	RuleConflict     = "Conflict"
	RuleUnauthorized = "Unauthorized"
	RuleUnavailable  = "Unavailable"
	RuleTimeout      = "Timeout"
	// RuleAdmissionTimeout: an admission webhook of the management cluster hangs.
	RuleAdmissionTimeout = "AdmissionTimeout"
)

// Rule is a row of the table of rules.
type Rule struct {
	// Rule is the constant.
	Rule string
	// Meaning is what is wrong when it is broken.
	Meaning string
}

// Rules lists every rule that has a constant.
func Rules() []Rule {
	return []Rule{
		{RuleInvalid, "the value is not one that may be there"},
		{RuleRequired, "the field is missing"},
		{RuleDuplicate, "a field or key is given twice; of event.id: another command of this source had this id"},
		{RuleForbidden, "the field may not be set, or not by this installation"},
		{RuleNotFound, "there is no such object, or no such namespace"},
		{RuleNotSupported, "the value is not one of those listed"},
		{RuleInternal, "the API server answered every try with an error that is no refusal"},
		{RuleTooLong, "the value is too long"},
		{RuleTooMany, "the list has too many items; of a request: too many are being worked on"},
		{RuleTypeInvalid, "the value is of the wrong type"},
		{RuleTooLarge, "data, id or source of the event is too large"},
		{RuleUnknown, "there is no such field, no such type of command, or no such kind"},
		{RuleDeleting, "the object is being deleted"},
		{RuleConflict, "the object has another generation than the one expected"},
		{RuleUnauthorized, "the request carries no token of this installation"},
		{RuleUnavailable, "NATS does not answer; the command may be sent again with the same id"},
		{RuleTimeout, "the command is accepted and not carried out yet; sent again with the same id it is answered"},
		{RuleAdmissionTimeout, "an admission webhook of the management cluster does not answer; nothing was changed"},
	}
}
