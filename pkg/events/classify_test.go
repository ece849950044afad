package events_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/pkg/intent"
)

func TestClassify(t *testing.T) {
	api := func(code int, number jetstream.ErrorCode) error {
		return &jetstream.APIError{Code: code, ErrorCode: number}
	}
	for what, c := range map[string]struct {
		err  error
		want intent.Intent
	}{
		"JetStream has no leader":                                   {api(503, 10008), intent.Wait},
		"too few servers for a stream, as when one's disk was full": {api(400, 10005), intent.Wait},
		"no room for messages":                                      {api(500, 10047), intent.Wait},
		"a message that was sent before is not stored yet":          {api(409, 10158), intent.Wait},
		"nobody answers":                                            {nats.ErrNoResponders, intent.Wait},
		"a stream isn't there":                                      {jetstream.ErrStreamNotFound, intent.Wait},
		"a configuration that is refused":                           {api(400, 10052), intent.Retry},
		"somebody else wrote meanwhile":                             {intent.ErrStale, intent.Reread},
		"anything else":                                             {errors.New("refused"), intent.Retry},
	} {
		t.Run(what, func(t *testing.T) {
			if got := intent.Of(events.Classify(fmt.Errorf("create bucket: %w", c.err))); got != c.want {
				t.Errorf("%d, not %d", got, c.want)
			}
		})
	}
}
