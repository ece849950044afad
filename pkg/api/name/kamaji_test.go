package name

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestChecksumOf(t *testing.T) {
	t.Parallel()
	data, other := map[string][]byte{"b": []byte("2"), "a": []byte("1")}, map[string][]byte{"a": []byte("3")}
	kamajis, ours := "c20ad4d76fe97759aa27a0c99bff6710", Checksum(data) // MD5 of 12
	if KamajiChecksum(data) != kamajis {
		t.Fatal(KamajiChecksum(data))
	}
	partition := map[string]string{LabelPartition: "1"}
	for what, c := range map[string]struct {
		labels    map[string]string
		noted     string
		has, want map[string][]byte
		sum       string
	}{
		"Kamaji's, as it is on pods":                      {nil, kamajis, data, data, kamajis},
		"Kamaji's, whose annotation is of something else": {nil, "0123", data, data, kamajis},
		"Kamaji's, adopted":                               {partition, kamajis, data, data, kamajis},
		"Kamaji's, with other content":                    {partition, kamajis, other, other, Checksum(other)},
		"Kamaji's, to be made anew":                       {nil, KamajiChecksum(other), other, data, ours},
		"ours":                                            {partition, ours, data, data, ours},
		"ours, without its labels":                        {nil, ours, data, data, ours},
		"ours, with an annotation that somebody changed":  {partition, "0123", data, data, ours},
		"ours, without an annotation":                     {nil, "", data, data, ours},
	} {
		o := &metav1.ObjectMeta{Labels: c.labels, Annotations: map[string]string{AnnotationChecksum: c.noted}}
		if sum := ChecksumOf(o, c.has, c.want); sum != c.sum {
			t.Errorf("%s: %s", what, sum)
		}
	}
}
