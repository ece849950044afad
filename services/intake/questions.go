package intake

// Questions of the operator, answered by whichever replica the server picks.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/api/name"
	"github.com/stoker-k8s/stoker/pkg/events"
)

// questions are the endpoints.
func (s *svc) questions() events.Questions {
	return events.Questions{
		Service: event.IntakeService, Version: "1.0.0", Description: "dead letters, replicas and partitions, looks at tenants, plans",
		Endpoints: map[string]events.Question{
			"dead-list":   {Subject: event.QueryDeadList, Timeout: questionTimeout, Answer: s.answerDeadList},
			"dead-replay": {Subject: event.QueryDeadReplay, Timeout: questionTimeout, Answer: s.answerDeadReplay},
			"dead-drop":   {Subject: event.QueryDeadDrop, Timeout: questionTimeout, Answer: s.answerDeadDrop},
			"replicas":    {Subject: event.QueryReplicas, Timeout: questionTimeout, Answer: s.answerReplicas},
			"partitions":  {Subject: event.QueryPartitions, Timeout: questionTimeout, Answer: s.answerPartitions},
			"resync":      {Subject: event.QueryResync, Timeout: questionTimeout, Answer: s.answerResync},
			"plan":        {Subject: events.PlanSubjects, Timeout: questionTimeout, AnswerOn: s.answerPlan},
		},
	}
}

// decodeQuestion decodes a question into q; nothing at all is one in which everything is empty. A field that doesn't exist is refused: a filter that
// was misspelt would pick more than was meant. example is what is sent back then.
func decodeQuestion(question []byte, q any, example string) error {
	if len(bytes.TrimSpace(question)) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(question))
	d.DisallowUnknownFields()
	if err := d.Decode(q); err != nil {
		return badQuestion("%s; send JSON like %s", err, example)
	}
	if d.More() {
		return badQuestion("there is more than one JSON object; send JSON like %s", example)
	}
	return nil
}

func badQuestion(format string, args ...any) error {
	return &events.Refusal{Code: "400", Message: fmt.Sprintf(format, args...)}
}

// checkFilter refuses values that would be no single token of a subject, or that nothing has.
func checkFilter(f event.DeadFilter) error {
	if f.Service != "" && !slices.Contains(name.Services(), f.Service) {
		return badQuestion("service %q: must be one of %s", events.Clip(f.Service), strings.Join(name.Services(), ", "))
	}
	scopes := []string{events.ClusterScoped, events.ClusterScoped + event.KubeconfigGenerators}
	if f.Namespace != "" && !slices.Contains(scopes, f.Namespace) && len(validation.IsDNS1123Label(f.Namespace)) > 0 {
		return badQuestion("namespace %q: must be the name of a namespace, %q for DataStores, or %q", events.Clip(f.Namespace), scopes[0], scopes[1])
	}
	if f.Name != "" && len(validation.IsDNS1123Subdomain(f.Name)) > 0 {
		return badQuestion("name %q: must be the name of a Kubernetes object, in lower-case letters, digits, dashes and dots", events.Clip(f.Name))
	}
	return nil
}
