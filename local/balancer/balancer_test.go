package balancer

import (
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/stoker-k8s/stoker/internal/testing/port"
)

// A backendServer greets a connection with its name and, when its client has said all, answers with what was said.
func backendServer(t *testing.T, name string) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.WriteString(conn, name+":")
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String())
}

func pod(name string, at netip.AddrPort, ready corev1.ConditionStatus) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", Labels: map[string]string{"app": "x"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{
			{Name: "api", ContainerPort: int32(at.Port())},
		}}}},
		Status: corev1.PodStatus{
			PodIP: at.Addr().String(), Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}},
		},
	}
}

// ask sends a text and its end, and returns the answer.
func ask(t *testing.T, address, text string) string {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		return ""
	}
	_ = conn.(*net.TCPConn).CloseWrite()
	answer, _ := io.ReadAll(conn)
	return string(answer)
}

func TestSliced(t *testing.T) {
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	slice := func(name, service, address string) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", Labels: map[string]string{discoveryv1.LabelServiceName: service}},
			Ports:      []discoveryv1.EndpointPort{{Name: new("api"), Port: new(int32(20000))}, {Name: new("other"), Port: new(int32(1))}},
		}
		if address != "" {
			s.Annotations = map[string]string{AddressAnnotation: address}
		}
		return s
	}
	for _, s := range []*discoveryv1.EndpointSlice{slice("a", "s", "127.0.0.2"), slice("b", "another", "127.0.0.3"), slice("c", "s", "")} {
		if err := store.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	s := &service{namespace: "ns", name: "s", slices: discoverylisters.NewEndpointSliceLister(store)}
	if got := s.sliced("api"); len(got) != 1 || got[0] != "127.0.0.2:20000" {
		t.Errorf("%v", got)
	}
}

func TestNodePort(t *testing.T) {
	a := backendServer(t, "a")
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	if err := store.Add(pod("a", a, corev1.ConditionTrue)); err != nil {
		t.Fatal(err)
	}
	balancer := &Balancer{cfg: Config{
		Pods: corelisters.NewPodLister(store), Node: netip.MustParseAddr("127.0.0.1"), Log: slog.New(slog.DiscardHandler),
	}}
	object := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "ns"},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Selector: map[string]string{"app": "x"}, Ports: []corev1.ServicePort{
			{Port: 1, TargetPort: intstr.FromString("api")},
		}},
	}
	s := balancer.newService(object, netip.Addr{})
	if err := s.serve(object); err != nil || len(s.fronts) > 0 {
		t.Fatalf("without a node port it listens on %v: %v", s.fronts, err)
	}
	for tries := 1; ; tries++ { // somebody else may take a port that was free
		object.Spec.Ports[0].NodePort = int32(port.Free(t))
		err := s.serve(object)
		if err == nil {
			break
		}
		if tries == 10 {
			t.Fatal(err)
		}
	}
	defer s.close()
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(int(object.Spec.Ports[0].NodePort)))
	if got := ask(t, address, "hello"); got != "a:hello" {
		t.Errorf("got %q", got)
	}
}

func TestForward(t *testing.T) {
	a, b := backendServer(t, "a"), backendServer(t, "b")
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	put := func(pods ...*corev1.Pod) {
		for _, p := range pods {
			if err := store.Add(p); err != nil {
				t.Fatal(err)
			}
		}
	}
	object := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "ns"},
		Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "x"}, Ports: []corev1.ServicePort{
			{TargetPort: intstr.FromString("api")},
		}},
	}
	balancer := &Balancer{cfg: Config{Pods: corelisters.NewPodLister(store), Log: slog.New(slog.DiscardHandler)}}
	s := balancer.newService(object, netip.MustParseAddr("127.0.0.1"))
	for tries := 1; ; tries++ { // somebody else may take a port that was free
		object.Spec.Ports[0].Port = int32(port.Free(t))
		err := s.serve(object)
		if err == nil {
			break
		}
		if tries == 10 {
			t.Fatal(err)
		}
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(int(object.Spec.Ports[0].Port)))

	t.Run("without a ready pod, a connection is closed at once", func(t *testing.T) {
		put(pod("a", a, corev1.ConditionFalse))
		if got := ask(t, address, "x"); got != "" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("the end of what a client says is passed on, and the answer comes back", func(t *testing.T) {
		put(pod("a", a, corev1.ConditionTrue))
		if got := ask(t, address, "hello"); got != "a:hello" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("ready pods take turns", func(t *testing.T) {
		put(pod("b", b, corev1.ConditionTrue))
		count := map[string]int{}
		for range 10 {
			count[ask(t, address, "")]++
		}
		if count["a:"] != 5 || count["b:"] != 5 {
			t.Errorf("got %v", count)
		}
	})
	t.Run("a pod that takes no connection is not passed over, as by kube-proxy", func(t *testing.T) {
		put(pod("b", netip.AddrPortFrom(a.Addr(), 1), corev1.ConditionTrue))
		count := map[string]int{}
		for range 4 {
			count[ask(t, address, "x")]++
		}
		if count["a:x"] != 2 || count[""] != 2 {
			t.Errorf("got %v", count)
		}
	})
	t.Run("a connection outlives its pod's readiness, not its Service", func(t *testing.T) {
		put(pod("b", b, corev1.ConditionFalse))
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.ReadFull(conn, make([]byte, len("a:"))); err != nil {
			t.Fatal(err)
		}
		put(pod("a", a, corev1.ConditionFalse), pod("b", b, corev1.ConditionFalse))
		if got := ask(t, address, "x"); got != "" {
			t.Errorf("a new connection got %q", got)
		}
		_, _ = io.WriteString(conn, "still here")
		_ = conn.(*net.TCPConn).CloseWrite()
		if got, _ := io.ReadAll(conn); string(got) != "still here" {
			t.Errorf("the old one got %q", got)
		}
		put(pod("a", a, corev1.ConditionTrue))
		last, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer last.Close()
		s.close()
		_, _ = io.ReadAll(last) // ends
		if conn, err := net.Dial("tcp", address); err == nil {
			conn.Close()
			t.Error("it still listens")
		}
	})
}
