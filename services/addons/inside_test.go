package addons

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/stoker-k8s/stoker/pkg/api/event"
)

// As kube-apiserver v1.35.4 with networking.k8s.io/v1beta1 writes it.
const deprecated = `apiserver_requested_deprecated_apis{group="",removed_release="",resource="endpoints",subresource="",version="v1"} 1
apiserver_requested_deprecated_apis{group="networking.k8s.io",removed_release="1.37",resource="ipaddresses",subresource="",version="v1beta1"} 1
`

func TestDeprecatedIn(t *testing.T) {
	t.Parallel()
	endpoints := event.DeprecatedAPI{Version: "v1", Resource: "endpoints"}
	addresses := event.DeprecatedAPI{Group: "networking.k8s.io", Version: "v1beta1", Resource: "ipaddresses", RemovedIn: "1.37"}
	series := func(labels, value string) string { return deprecatedRequests + "{" + labels + "} " + value + "\n" }
	for sentence, c := range map[string]struct {
		text string
		want []event.DeprecatedAPI
		bad  bool
	}{
		"those that are removed come first":      {text: deprecated, want: []event.DeprecatedAPI{addresses, endpoints}},
		"nothing":                                {},
		"what was not requested doesn't count":   {text: series(`version="v1"`, "0")},
		"labels that are not known are no fault": {text: series(`version="v1",resource="endpoints",colour="red"`, "1"), want: []event.DeprecatedAPI{endpoints}},
		"what is removed sooner comes sooner": {
			text: series(`version="v1",resource="b",removed_release="1.100"`, "1") + series(`version="v1",resource="a",removed_release="1.99"`, "1"),
			want: []event.DeprecatedAPI{{Version: "v1", Resource: "a", RemovedIn: "1.99"}, {Version: "v1", Resource: "b", RemovedIn: "1.100"}},
		},
		"what can't be read": {text: deprecatedRequests + "{", bad: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			got, err := deprecatedIn(bytes.NewBufferString(c.text))
			if (err != nil) != c.bad || len(got) != len(c.want) || len(got) > 0 && !reflect.DeepEqual(got, c.want) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	var many strings.Builder
	for range event.MaxDeprecatedAPIs + 5 {
		many.WriteString(series(`version="v1",resource="`+strings.Repeat("x", many.Len()%1000+1)+`"`, "1"))
	}
	if got, err := deprecatedIn(bytes.NewBufferString(many.String())); err != nil || len(got) != event.MaxDeprecatedAPIs || len(got[len(got)-1].Resource) > 300 {
		t.Errorf("%d, %v", len(got), err)
	}
}
