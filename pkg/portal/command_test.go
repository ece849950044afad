package portal

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestRefused(t *testing.T) {
	api := func(code int, errCode jetstream.ErrorCode) error {
		return &jetstream.APIError{Code: code, ErrorCode: errCode}
	}
	for what, c := range map[string]struct {
		err  error
		want bool
	}{
		"a message that is larger than the stream takes":            {api(400, 10054), true},
		"a message that was sent before is not stored yet":          {api(409, 10158), false},
		"too few servers for a stream, as when one's disk was full": {api(400, 10005), false},
		"JetStream has no leader":                                   {api(503, 10008), false},
		"nobody answers":                                            {nats.ErrNoResponders, false},
	} {
		t.Run(what, func(t *testing.T) {
			if got := refused(fmt.Errorf("publish: %w", c.err)); got != c.want {
				t.Errorf("refused: %v", got)
			}
		})
	}
}
