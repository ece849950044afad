package name

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Limits returns how many tenants, and how many bytes of theirs, a DataStore takes at most by its annotations; nil for no
// limit. The error names annotation and value and says what would be right; what it speaks of is nil.
func Limits(annotations map[string]string) (tenants, bytes *int64, err error) {
	if v, ok := annotations[AnnotationMaxTenants]; ok {
		n, bad := strconv.ParseInt(v, 10, 64)
		if bad != nil || n < 0 {
			err = fmt.Errorf("annotation %s: %q: must be a number of tenants, such as 200", AnnotationMaxTenants, v)
		} else {
			tenants = &n
		}
	}
	if v, ok := annotations[AnnotationMaxBytes]; ok {
		q, bad := resource.ParseQuantity(v)
		if bad == nil && q.Sign() >= 0 && q.Cmp(*resource.NewQuantity(math.MaxInt64, resource.BinarySI)) <= 0 {
			n := q.Value()
			bytes = &n
		} else {
			err = fmt.Errorf("annotation %s: %q: must be a number of bytes, such as 8Gi", AnnotationMaxBytes, v)
		}
	}
	return tenants, bytes, err
}

// Count is a number for people ("2,100").
func Count(n int64) string {
	digits := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// Bytes is a number of bytes for people, with two or three digits and a unit that AnnotationMaxBytes takes ("8Gi", "1.5Mi").
func Bytes(n int64) string {
	units := []string{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}
	v, unit := float64(n), 0
	for v >= 1023.5 && unit < len(units)-1 {
		v, unit = v/1024, unit+1
	}
	digits := 0
	if v < 9.95 {
		digits = 1
	}
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', digits, 64), ".0") + units[unit]
}
