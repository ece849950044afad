package robustness

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/stoker-k8s/stoker/pkg/api/event"
)

// Violation is an invariant of the design that a history shows not to have held.
type Violation struct {
	// Invariant that is violated, in a few words.
	Invariant string
	// Tenant that it shows on, empty for none.
	Tenant string
	// Message says what was seen.
	Message string
	// Around is when.
	Around time.Time
}

func (v Violation) String() string {
	return fmt.Sprintf("%s: %s: %s", v.Invariant, cmp.Or(v.Tenant, "-"), v.Message)
}

// Checks are all checks of a whole history.
var Checks = []func([]Record) []Violation{
	CheckAnswers, CheckRefused, CheckGenerations, CheckOneCA, CheckOneWriter, CheckEnds, CheckAccepted, CheckLeft, CheckHeld,
	CheckDrift, CheckDelay,
}

// Check runs all checks.
func Check(history []Record) []Violation {
	var all []Violation
	for _, check := range Checks {
		all = append(all, check(history)...)
	}
	return all
}

// CheckAnswers has every change end in exactly one answer.
func CheckAnswers(history []Record) (found []Violation) {
	ends := map[string]int{}
	for _, r := range history {
		switch r.Kind {
		case Answered, Refused:
			ends[r.ID]++
		case Unanswered:
			found = append(found, Violation{"every command is answered", r.Tenant, fmt.Sprintf("%s %s: %s", r.What, r.ID, r.Detail), r.At})
		}
	}
	for _, r := range history {
		if r.Kind == Asked && ends[r.ID] > 1 {
			found = append(found, Violation{"every command is answered", r.Tenant, fmt.Sprintf("%s %s was answered %d times", r.What, r.ID, ends[r.ID]), r.At})
		}
	}
	return found
}

// CheckRefused has no change that was refused show in any object.
func CheckRefused(history []Record) (found []Violation) {
	refused := map[string]Record{}
	for _, r := range history {
		if r.Kind == Refused && r.What != "delete" && r.Mark == r.ID { // others ask for the mark that is there
			refused[r.Mark] = r
		}
	}
	for _, r := range history {
		if by, ok := refused[r.Mark]; ok && r.Kind == Wrote {
			found = append(found, Violation{"what was refused has no effect", r.Tenant, fmt.Sprintf("%s has the mark of %s, refused for: %s", r.Object, r.Mark, by.Detail), r.At})
			delete(refused, r.Mark) // once is enough
		}
	}
	return found
}

// CheckGenerations has each service tell of a tenant's generations in their order. What is told again is nothing new.
func CheckGenerations(history []Record) (found []Violation) {
	type teller struct{ uid, service string }
	last, told := map[teller]Record{}, map[string]bool{}
	for _, r := range history {
		if r.Kind != Told || r.UID == "" || r.What == "due" || r.ID != "" && told[r.ID] {
			continue
		}
		told[r.ID] = true
		k := teller{r.UID, r.By}
		if before, ok := last[k]; ok && r.Generation < before.Generation {
			found = append(found, Violation{"generations in order", r.Tenant, fmt.Sprintf("%s.%s of generation %d after %s of %d", r.By, r.What, r.Generation, before.What, before.Generation), r.At})
		}
		last[k] = r
	}
	return found
}

// CheckOneCA has a tenant's certificate authority created once in its life.
func CheckOneCA(history []Record) (found []Violation) {
	created := map[string]int{}
	for _, r := range history {
		if r.Kind != Wrote || r.What != "create" {
			continue
		}
		switch {
		case strings.HasPrefix(r.Object, "tenantcontrolplanes/"):
			created[r.Tenant] = 0
		case strings.HasPrefix(r.Object, "secrets/") && strings.HasSuffix(r.Object, "-ca") && "default/"+strings.TrimSuffix(strings.TrimPrefix(r.Object, "secrets/"), "-ca") == r.Tenant:
			if created[r.Tenant]++; created[r.Tenant] > 1 {
				found = append(found, Violation{"one CA ever", r.Tenant, fmt.Sprintf("the CA was created %d times", created[r.Tenant]), r.At})
			}
		}
	}
	return found
}

// shortestMove is how long a partition needs at least to go from one replica to another and back.
const shortestMove = time.Second

// CheckOneWriter has no two replicas of a service write for a tenant, a DataStore, or the ConfigMap of admission by turns. To the
// ConfigMap any replica of intake may add a DataStore that a command of its partition names; only one takes DataStores away.
func CheckOneWriter(history []Record) (found []Violation) {
	type writer struct{ tenant, service string }
	last := map[writer][2]Record{} // the two last writers' last writes, the latest second
	for _, r := range history {
		service, address, ok := strings.Cut(r.By, "@")
		if r.Kind != Wrote || !ok || r.What == adds {
			continue
		}
		k := writer{r.Tenant, service}
		two := last[k]
		_, latest, _ := strings.Cut(two[1].By, "@")
		if latest == address {
			two[1] = r
		} else {
			if two[0].By == r.By && r.At.Sub(two[0].At) < shortestMove {
				found = append(found, Violation{"one writer at a time", r.Tenant, fmt.Sprintf("%s wrote %s between %s and %s of %s", two[1].By, two[1].Object, two[0].Object, r.Object, r.By), r.At})
			}
			two = [2]Record{two[1], r}
		}
		last[k] = two
	}
	return found
}

// CheckEnds has every tenant come to what was asked for last.
func CheckEnds(history []Record) (found []Violation) {
	ended := map[string]Record{}
	for _, r := range history {
		if r.Kind == Ended {
			ended[r.Tenant] = r
		}
	}
	for _, want := range history {
		if want.Kind != Expected {
			continue
		}
		got := ended[want.Tenant]
		if got.What != want.What || want.What != "Deleted" && (got.Mark != want.Mark || got.UID != want.UID) {
			found = append(found, Violation{"every tenant comes to what was asked for", want.Tenant, fmt.Sprintf("is %s (mark %q, uid %s), not %s (mark %q, uid %s): %s", cmp.Or(got.What, "nothing"), got.Mark, got.UID, want.What, want.Mark, want.UID, got.Detail), want.At})
		}
	}
	return found
}

// CheckAccepted has every generation that was accepted end: it, or a later one, is shown Ready, Sleeping, Failed or Paused, or the
// tenant Deleted.
func CheckAccepted(history []Record) (found []Violation) {
	ends := []string{"Ready", "Sleeping", "Failed", "Paused", "Deleted"}
	last := map[string]int64{} // by UID, the highest generation that came to an end
	seen := map[string]bool{}  // by UID; a tenant that kubectl made and deleted while all were away was never accepted
	for _, r := range history {
		if r.Kind == Showed && slices.Contains(ends, r.What) {
			last[r.UID] = max(last[r.UID], r.Generation)
		}
		seen[r.UID] = seen[r.UID] || r.Kind == Told
		// The last status may have gone with all that NATS held before anybody saw it.
		if r.Kind == Showed && r.What == "Deleted" || r.Kind == Told && r.By == "status" && r.What == event.Deleted {
			last[r.UID] = math.MaxInt64
		}
	}
	for _, r := range history {
		if r.Kind == Answered && seen[r.UID] && !strings.HasPrefix(r.Tenant, storePrefix) && r.Generation > last[r.UID] {
			found = append(found, Violation{"every accepted generation ends", r.Tenant, fmt.Sprintf("generation %d of %s (%s) was never shown to have come to an end", r.Generation, r.UID, r.ID), r.At})
		}
	}
	return found
}

// CheckLeft has nothing left of a tenant that is gone, and no key where none may be.
func CheckLeft(history []Record) (found []Violation) {
	for _, r := range history {
		switch r.Kind {
		case Left:
			found = append(found, Violation{"nothing is left of a deleted tenant", r.Tenant, r.What + " " + r.Object, r.At})
		case Leaked:
			found = append(found, Violation{"no key outside Secrets", r.Tenant, r.What + " " + r.Object, r.At})
		}
	}
	return found
}

// storePrefix is what a DataStore has before its name where others have the namespace and name of a tenant.
const storePrefix = "datastores/"

// CheckHeld has no DataStore go before the tenants that use it.
func CheckHeld(history []Record) (found []Violation) {
	for _, r := range history {
		if r.Kind == Lost {
			found = append(found, Violation{"a used DataStore stays", r.Tenant, r.Object + " is gone: " + r.Detail, r.At})
		}
	}
	return found
}

// CheckDrift has what somebody changes in a tenant be put right.
func CheckDrift(history []Record) (found []Violation) {
	for _, r := range history {
		if r.Kind == Drifted {
			found = append(found, Violation{"what drifts in a tenant is put right", r.Tenant, r.Object + ": " + r.Detail, r.At})
		}
	}
	return found
}

// Shortest is what of a history a person needs to see a violation: what concerns its tenant, and the faults, within some time before.
func (v Violation) Shortest(history []Record) []Record {
	var short []Record
	for _, r := range history {
		fault := r.Kind == Struck || r.Kind == Healed
		if r.At.After(v.Around.Add(time.Second)) || r.At.Before(v.Around.Add(-2*time.Minute)) && fault {
			continue
		}
		if fault || v.Tenant != "" && r.Tenant == v.Tenant {
			short = append(short, r)
		}
	}
	return short[max(0, len(short)-200):]
}
