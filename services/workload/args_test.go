package workload

import (
	"slices"
	"testing"
)

func TestLayer(t *testing.T) {
	managed, defaults := flags{"secure-port": "6443", "client-ca-file": "/ca"}, flags{"v": "1", "profiling": "true"}
	own := []string{"--client-ca-file=/ca", "--secure-port=6443"}
	tests := map[string]struct{ user, want []string }{
		"without extras, managed flags and defaults are sorted": {
			nil, []string{"--client-ca-file=/ca", "--profiling=true", "--secure-port=6443", "--v=1"},
		},
		"extras follow verbatim, in their order, and replace defaults": {
			[]string{"--v=4", "--audit=b", "--audit=a", "--profiling"},
			append(slices.Clone(own), "--v=4", "--audit=b", "--audit=a", "--profiling"),
		},
		"a managed flag can't be overridden": {
			[]string{"--secure-port=1", "--v=2", "--profiling=false"},
			append(slices.Clone(own), "--v=2", "--profiling=false"),
		},
		"nor with its value in an argument of its own, with underscores or with spaces": {
			[]string{"--secure-port", "1", "--secure_port=2", " --secure-port=3", "--client-ca-file", "--v=2", "--profiling=false"},
			append(slices.Clone(own), "--v=2", "--profiling=false"),
		},
		"a flag that starts like a managed one is another": {
			[]string{"--secure-port-extra=1", "--v=2", "--profiling=false"},
			append(slices.Clone(own), "--secure-port-extra=1", "--v=2", "--profiling=false"),
		},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			if got := layer(managed, defaults, test.user); !slices.Equal(got, test.want) {
				t.Errorf("got  %v\nwant %v", got, test.want)
			}
		})
	}
}
