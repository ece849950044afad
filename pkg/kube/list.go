package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// errStalled means that a server stopped in the middle of an answer.
var errStalled = fmt.Errorf("nothing more of the answer came for %s", requestTimeout)

// readList sends a list request and calls each with every object as it arrives, so that neither memory nor time is bounded by how
// many there are: the answer may take as long as it wants while more of it comes within requestTimeout. Objects may have been
// handed on when it returns an error.
func readList(ctx context.Context, req *rest.Request, each func(*metav1.PartialObjectMetadata)) (metav1.ListMeta, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(requestTimeout, func() { cancel(errStalled) })
	defer idle.Stop()
	meta, err := func() (meta metav1.ListMeta, err error) {
		body, err := req.Stream(ctx)
		if err != nil {
			return meta, err
		}
		defer body.Close()
		return decodeList(&progressing{body, idle}, each)
	}()
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errStalled) {
		err = fmt.Errorf("%s: %w", req.URL().Path, cause)
	}
	return meta, err
}

// progressing is the body of an answer that may go on while more of it comes.
type progressing struct {
	io.Reader
	idle *time.Timer
}

func (p *progressing) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	if n > 0 {
		p.idle.Reset(requestTimeout)
	}
	return n, err
}

// decodeList reads a list of objects one by one.
func decodeList(r io.Reader, each func(*metav1.PartialObjectMetadata)) (meta metav1.ListMeta, err error) {
	d := json.NewDecoder(r)
	if err := expect(d, '{'); err != nil {
		return meta, err
	}
	for d.More() {
		field, err := d.Token()
		if err != nil {
			return meta, err
		}
		switch field {
		case "metadata":
			err = d.Decode(&meta)
		case "items":
			err = decodeItems(d, each)
		default:
			err = d.Decode(&json.RawMessage{})
		}
		if err != nil {
			return meta, err
		}
	}
	return meta, expect(d, '}') // an answer that was cut off is none
}

func decodeItems(d *json.Decoder, each func(*metav1.PartialObjectMetadata)) error {
	first, err := d.Token()
	if err != nil || first == nil { // null: no items
		return err
	}
	if first != json.Delim('[') {
		return fmt.Errorf("items of a list begin with %v", first)
	}
	for d.More() {
		o := &metav1.PartialObjectMetadata{}
		if err := d.Decode(o); err != nil {
			return err
		}
		each(o)
	}
	return expect(d, ']')
}

func expect(d *json.Decoder, want json.Delim) error {
	got, err := d.Token()
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	if got != want {
		return fmt.Errorf("list has %v in place of %v", got, want)
	}
	return nil
}
