package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

const (
	// requestTimeout is the default of Options.Timeout; of a list of metadata, how long nothing of it may come.
	requestTimeout = 10 * time.Second
	// pageSize is how many objects a list asks for at a time.
	pageSize = 500

	jsonType = runtime.ContentTypeJSON
	// metadataOnly asks the server for metadata instead of whole objects.
	metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
	// metadataLists is metadataOnly for lists.
	metadataLists = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
)

// serverTimeout lets the server give up first, so that its answer still says why.
func (c *Client) serverTimeout() time.Duration { return c.timeout - c.timeout/10 }

// request begins a request for an object, or for a collection when name is empty; of all namespaces when namespace is empty.
func (c *Client) request(verb string, r Resource, namespace, name string, sub ...string) *rest.Request {
	root := []string{"/apis", r.GroupVersion.Group, r.GroupVersion.Version}
	if r.GroupVersion.Group == "" {
		root = []string{"/api", r.GroupVersion.Version}
	}
	// MaxRetries: client-go would repeat a request, a write as well, when an answer has Retry-After. That is the loop's to decide.
	req := c.rest.Verb(verb).MaxRetries(0).AbsPath(root...).NamespaceIfScoped(namespace, r.Namespaced && namespace != "").
		Resource(r.Plural).Param("timeout", c.serverTimeout().String())
	if name != "" {
		req = req.Name(name)
	}
	return req.SubResource(sub...)
}

// write begins a request that changes an object. The server keeps fields under the client's manager.
func (c *Client) write(verb, contentType string, r Resource, namespace, name string, body []byte, sub ...string) *rest.Request {
	return c.request(verb, r, namespace, name, sub...).
		SetHeader("Content-Type", contentType).Body(body).Param("fieldManager", c.manager)
}

// do sends a request and decodes the answer into out, unless nil. A *json.RawMessage is given the answer as it is; for a
// *metav1.PartialObjectMetadata the server is asked for no more than that.
func (c *Client) do(ctx context.Context, req *rest.Request, out any) error {
	switch out.(type) {
	case *metav1.PartialObjectMetadata:
		req.SetHeader("Accept", metadataOnly)
	case *metav1.PartialObjectMetadataList:
		req.SetHeader("Accept", metadataLists)
	}
	if isDryRun(ctx) {
		req.Param("dryRun", metav1.DryRunAll)
	}
	limited, cancel := context.WithTimeout(quiet(ctx), c.timeout)
	defer cancel()
	result := req.Do(limited)
	if err := c.classify(ctx, result.Error()); err != nil {
		return err
	}
	data, err := result.Raw()
	if err != nil || out == nil {
		return err
	}
	if raw, ok := out.(*json.RawMessage); ok {
		*raw = data
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("%s: answer is not the object asked for: %w", req.URL().Path, err)
	}
	return nil
}

// quiet has client-go log nothing: errors are returned, and the loop logs an outage once.
func quiet(ctx context.Context) context.Context { return klog.NewContext(ctx, klog.Logger{}) }

// Apply makes the fields of an object so (server-side apply, force) and decodes the result into obj. obj is a pointer to
// a typed object or to a map; namespace and name are its metadata's. Errors are those of apimachinery's errors package,
// [intent.Unavailable] when the server can't be reached or can't answer, and [fence.ErrFenced]; so with all methods that write.
func (c *Client) Apply(ctx context.Context, r Resource, obj metav1.Object) error {
	body, err := applyBody(r, obj)
	if err != nil {
		return err
	}
	return c.apply(ctx, r, obj.GetNamespace(), obj.GetName(), body, obj)
}

// statusTries is how often a status is applied that somebody overtakes who writes to the object.
const statusTries = 5

// ApplyStatus is [Client.Apply] for the status subresource of the object with the name and UID of o; not found when it is gone, also if
// there is another one of its name. If o has a resourceVersion, as an object that was just read has, it is read again only when somebody
// has written to it since. With an empty UID it is for whichever object has the name.
func (c *Client) ApplyStatus(ctx context.Context, r Resource, o *metav1.ObjectMeta, status any) error {
	version := o.ResourceVersion
	for try := 1; ; try++ {
		meta := map[string]any{"name": o.Name, "namespace": o.Namespace}
		if o.UID != "" {
			// The server ignores the UID in the status of a custom resource, but not the version.
			if version == "" {
				there := &metav1.PartialObjectMetadata{}
				if err := c.Get(ctx, r, o.Namespace, o.Name, there); err != nil {
					return err
				}
				if there.UID != o.UID {
					return apierrors.NewNotFound(r.GroupVersion.WithResource(r.Plural).GroupResource(), o.Name)
				}
				version = there.ResourceVersion
			}
			meta["resourceVersion"] = version
		}
		body, err := json.Marshal(map[string]any{
			"apiVersion": r.GroupVersion.String(), "kind": r.Kind, "metadata": meta, "status": status,
		})
		if err != nil {
			return err
		}
		err = c.apply(ctx, r, o.Namespace, o.Name, body, nil, "status")
		if o.UID == "" || !apierrors.IsConflict(err) || try == statusTries {
			return err
		}
		version = ""
	}
}

// ApplyRaw applies the JSON or YAML of an object, no key twice, and decodes the result into out, unless nil. Here as elsewhere, a
// *json.RawMessage is given the answer as it is, and a *metav1.PartialObjectMetadata spares the server and the wire the rest.
func (c *Client) ApplyRaw(ctx context.Context, r Resource, namespace, name string, body []byte, out any) error {
	return c.apply(ctx, r, namespace, name, body, out)
}

func (c *Client) apply(ctx context.Context, r Resource, namespace, name string, body []byte, out any, sub ...string) error {
	// The server reads an apply as YAML. Its parser takes what begins and ends on one line for a possible key, and keeps all
	// of it until it knows better; with a line break it needs half the memory.
	if rest, ok := bytes.CutPrefix(body, []byte("{")); ok {
		body = append([]byte("{\n"), rest...)
	}
	// An apply with fields that the server doesn't know is always refused. Strict would have it read the YAML a second time,
	// for keys that are given twice, which our JSON has not.
	req := c.write(http.MethodPatch, string(types.ApplyPatchType), r, namespace, name, body, sub...).
		Param("force", "true").Param("fieldValidation", metav1.FieldValidationIgnore)
	return c.do(ctx, req, out)
}

// applyBody encodes an object without what a field manager must not claim: status and the server's own metadata.
func applyBody(r Resource, obj any) ([]byte, error) {
	m, err := applicable(r, obj)
	if err != nil {
		return nil, err
	}
	return json.Marshal(m)
}

// applicable is what applyBody encodes.
func applicable(r Resource, obj any) (map[string]any, error) {
	data, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	var m map[string]any
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, err
	}
	m["apiVersion"], m["kind"] = r.GroupVersion.String(), r.Kind
	delete(m, "status")
	if meta, ok := m["metadata"].(map[string]any); ok {
		for _, k := range []string{"creationTimestamp", "managedFields", "generation", "uid", "resourceVersion"} {
			delete(meta, k)
		}
	}
	return m, nil
}

// Create makes an object that must not exist yet and decodes the result into it; apierrors.IsAlreadyExists otherwise.
func (c *Client) Create(ctx context.Context, r Resource, obj metav1.Object) error {
	data, err := json.Marshal(obj)
	if err != nil {
		return err
	}
	return c.do(ctx, c.write(http.MethodPost, jsonType, r, obj.GetNamespace(), "", data).Param("fieldValidation", metav1.FieldValidationStrict), obj)
}

// Update replaces an object, or its subresource, that was read before; apierrors.IsConflict when it isn't what was read any more.
func (c *Client) Update(ctx context.Context, r Resource, obj metav1.Object, sub ...string) error {
	data, err := json.Marshal(obj)
	if err != nil {
		return err
	}
	return c.do(ctx, c.write(http.MethodPut, jsonType, r, obj.GetNamespace(), obj.GetName(), data, sub...), nil)
}

// Get decodes an object into out. Errors are those of apimachinery's errors package, and [intent.Unavailable] when the server can't
// be reached or can't answer; so with all methods that read.
func (c *Client) Get(ctx context.Context, r Resource, namespace, name string, out any) error {
	if name == "" {
		return errors.New("get " + r.Plural + ": name is empty")
	}
	return c.do(ctx, c.request(http.MethodGet, r, namespace, name), out)
}

// List decodes the objects that a label selector matches into out, a typed list, or a *metav1.PartialObjectMetadataList, which spares
// the server and the wire the rest.
func (c *Client) List(ctx context.Context, r Resource, namespace, selector string, out any) error {
	namespace, selector = c.within(r, namespace, selector)
	req := c.request(http.MethodGet, r, namespace, "")
	if selector != "" {
		req.Param("labelSelector", selector)
	}
	return c.do(ctx, req, out)
}

// Each calls f with every object that a label selector matches, in all namespaces, decoded into T, which need hold no more
// than what is looked at. It asks for 500 at a time, so that memory doesn't grow with their number.
func Each[T any](ctx context.Context, c *Client, r Resource, selector string, f func(*T)) error {
	namespace, selector := c.within(r, "", selector)
	next := ""
	for {
		req := c.request(http.MethodGet, r, namespace, "").Param("limit", strconv.Itoa(pageSize))
		if selector != "" {
			req.Param("labelSelector", selector)
		}
		if next != "" {
			req.Param("continue", next)
		}
		var page struct {
			Metadata metav1.ListMeta `json:"metadata"`
			Items    []T             `json:"items"`
		}
		if err := c.do(ctx, req, &page); err != nil {
			return err
		}
		for i := range page.Items {
			f(&page.Items[i])
		}
		if next = page.Metadata.Continue; next == "" {
			return nil
		}
	}
}

// Page lists the metadata of some objects of all namespaces, and returns what the next call is to go on from; "" at the end. Objects that
// come or go between two calls may be in it or not. When a server no longer remembers where to go on, it goes on all the same.
func (c *Client) Page(ctx context.Context, r Resource, from string) (items []metav1.PartialObjectMetadata, next string, err error) {
	for range 2 {
		var page metav1.PartialObjectMetadataList
		req := c.request(http.MethodGet, r, "", "").Param("limit", strconv.Itoa(pageSize))
		if from != "" {
			req.Param("continue", from)
		}
		err = c.do(ctx, req, &page)
		if err == nil {
			return page.Items, page.Continue, nil
		}
		var answered apierrors.APIStatus
		if !apierrors.IsResourceExpired(err) || !errors.As(err, &answered) {
			return nil, from, err
		}
		from = answered.Status().Continue // "" begins anew
	}
	return nil, from, err
}

// MergePatch changes an object, or its subresource, by a JSON merge patch (RFC 7386) and decodes the result into out, unless nil.
// apierrors.IsConflict when the patch has a resourceVersion and the object has another.
func (c *Client) MergePatch(ctx context.Context, r Resource, namespace, name string, patch, out any, sub ...string) error {
	data, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	req := c.write(http.MethodPatch, string(types.MergePatchType), r, namespace, name, data, sub...)
	return c.do(ctx, req.Param("fieldValidation", metav1.FieldValidationStrict), out)
}

// JSONPatch changes an object by operations of RFC 6902 and decodes the result into out, unless nil; one whose test fails is refused
// as invalid.
func (c *Client) JSONPatch(ctx context.Context, r Resource, namespace, name string, operations []map[string]any, out any) error {
	data, err := json.Marshal(operations)
	if err != nil {
		return err
	}
	return c.do(ctx, c.write(http.MethodPatch, string(types.JSONPatchType), r, namespace, name, data), out)
}

// Delete removes an object and reports whether there was one; preconditions and propagation as in o.
func (c *Client) Delete(ctx context.Context, r Resource, namespace, name string, o metav1.DeleteOptions) (found bool, err error) {
	return c.delete(ctx, r, namespace, name, o, nil)
}

// delete is Delete. It decodes the answer into out, unless nil: the object, or a Status where nothing is left of it.
func (c *Client) delete(ctx context.Context, r Resource, namespace, name string, o metav1.DeleteOptions, out any) (found bool, err error) {
	if name == "" {
		return false, errors.New("delete " + r.Plural + ": name is empty") // would be all of them
	}
	o.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}
	if isDryRun(ctx) { // the server reads parameters of a deletion from its body alone
		o.DryRun = []string{metav1.DryRunAll}
	}
	data, err := json.Marshal(o)
	if err != nil {
		return false, err
	}
	err = c.do(ctx, c.request(http.MethodDelete, r, namespace, name).SetHeader("Content-Type", jsonType).Body(data), out)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}
