package etcd

import "testing"

func TestWhichVersionsDenyTheirStatus(t *testing.T) {
	t.Parallel()
	for v, want := range map[string]bool{
		"3.4.37": false, "3.5.27": false, "3.5.28": true, "3.5.30": true, "3.5.31": false, "3.5.34": false,
		"3.6.0-rc.2": true, "3.6.0": true, "3.6.8": true, "3.6.11": true, "3.6.12": false, "3.6.16": false, "3.7.0": false, "": false, "unknown": false,
	} {
		if denied(v) != want {
			t.Errorf("%q: %t", v, !want)
		}
	}
}
