package backup

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

const (
	// amazon is the endpoint of a URL that names none.
	amazon = "https://s3.amazonaws.com"
	// partSize is of the pieces that a large object is sent in. There is one in memory at a time. 10,000 are 156 GiB.
	partSize = 16 << 20
	// wholeSize is up to where an object is sent as one, of known size.
	wholeSize = 1 << 20
	// attempts at each request, within a few seconds.
	attempts = 4
	// answerWithin is how long the server may take to answer a request.
	answerWithin = time.Minute
)

// bucket is a Location in an S3 server.
type bucket struct {
	client    *minio.Client
	transport *http.Transport
	name      string
	prefix    string // of all objects: empty, or ending with a slash
	endpoint  string
	region    string
	redact    *strings.Replacer
}

func openBucket(ctx context.Context, a Access, u *url.URL) (Location, error) {
	b, err := parseBucket(a, u)
	if err != nil {
		return nil, err
	}
	for o := range b.client.ListObjectsIter(ctx, b.name, minio.ListObjectsOptions{Prefix: b.prefix, MaxKeys: 1}) {
		if o.Err != nil {
			_ = b.Close()
			return nil, b.fail(ctx, "list objects", o.Err)
		}
		break
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return b, nil
}

// parseBucket reads a URL, and sends nothing.
func parseBucket(a Access, u *url.URL) (*bucket, error) {
	b := &bucket{name: u.Host, prefix: strings.Trim(u.Path, "/"), redact: redact(a)}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, refused("its URL has parameters that can't be read")
	}
	switch {
	case b.name == "":
		return nil, refused("its URL names no bucket: it is s3://bucket/prefix?endpoint=https://host:port")
	case b.prefix != "" && !validName(b.prefix):
		return nil, refused("its prefix %.100q has characters other than letters, digits, '-', '_', '.' and '/'", b.prefix)
	case a.AccessKeyID == "" || a.SecretAccessKey == "":
		return nil, refused("an access key's ID and secret are needed, and at least one is missing")
	}
	if b.prefix != "" {
		b.prefix += "/"
	}
	b.endpoint = amazon
	lookup := minio.BucketLookupAuto
	for key, values := range query {
		value := values[len(values)-1]
		switch key {
		case "endpoint":
			b.endpoint = value
		case "region":
			b.region = value
		case "path-style":
			path, err := strconv.ParseBool(value)
			if err != nil {
				return nil, refused("its URL has path-style=%.20q, which is true or false", value)
			}
			lookup = minio.BucketLookupDNS
			if path {
				lookup = minio.BucketLookupPath
			}
		default:
			return nil, refused("its URL has the unknown parameter %.30q: there are endpoint, region and path-style", key)
		}
	}
	return b, b.connect(a, lookup)
}

func (b *bucket) connect(a Access, lookup minio.BucketLookupType) error {
	endpoint, err := url.Parse(b.endpoint)
	if err != nil || endpoint.Host == "" || endpoint.Scheme != "https" && endpoint.Scheme != "http" ||
		strings.Trim(endpoint.Path, "/") != "" || endpoint.RawQuery != "" || endpoint.User != nil {
		return refused("its endpoint is not https://host:port, or http://host:port to send all in the clear")
	}
	b.endpoint = endpoint.Scheme + "://" + endpoint.Host
	secure := endpoint.Scheme == "https"
	if b.transport, err = minio.DefaultTransport(secure); err != nil {
		return refused("its connection can't be made: %v", err)
	}
	b.transport.ResponseHeaderTimeout = answerWithin
	if len(a.CA) > 0 && secure {
		roots, err := x509.SystemCertPool()
		if err != nil {
			roots = x509.NewCertPool()
		}
		if !roots.AppendCertsFromPEM(a.CA) {
			return refused("its CA has no certificate in PEM form")
		}
		b.transport.TLSClientConfig.RootCAs = roots
	}
	b.client, err = minio.New(endpoint.Host, &minio.Options{
		Creds:  credentials.NewStaticV4(a.AccessKeyID, a.SecretAccessKey, a.SessionToken),
		Secure: secure, Region: b.region, BucketLookup: lookup, Transport: b.transport, MaxRetries: attempts,
	})
	if err != nil {
		return refused("its endpoint %.200q can't be one: %v", endpoint.Host, err)
	}
	return nil
}

// redact takes credentials out of what servers say.
func redact(a Access) *strings.Replacer {
	var pairs []string
	for _, secret := range []string{a.SecretAccessKey, a.SessionToken, a.AccessKeyID} {
		if secret != "" {
			pairs = append(pairs, secret, "…")
		}
	}
	return strings.NewReplacer(pairs...)
}

func (b *bucket) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	if err := checkName(name); err != nil {
		return err
	}
	r, w := io.Pipe()
	defer w.CloseWithError(errGone)
	done := make(chan error, 1)
	go func() {
		err := b.send(ctx, name, r)
		_ = r.CloseWithError(err) // so that write ends, too
		done <- err
	}()
	written := write(w)
	if written != nil {
		written = writeError{written}
	}
	_ = w.CloseWithError(written)
	sent := <-done
	var own writeError
	switch {
	case errors.As(sent, &own):
		return own.error
	case sent != nil:
		return sent
	case written != nil: // not reached: what can't be read to its end isn't sent
		return written
	}
	return nil
}

// send makes an object of all that can be read. Where that fails, nothing is left.
func (b *bucket) send(ctx context.Context, name string, from io.Reader) error {
	options := minio.PutObjectOptions{
		// Buckets whose objects are locked want the MD5.
		ContentType: "application/octet-stream", SendContentMd5: true, PartSize: partSize, NumThreads: 1,
	}
	var begin bytes.Buffer
	size, err := io.Copy(&begin, io.LimitReader(from, wholeSize+1))
	if err != nil {
		return err
	}
	if size <= wholeSize {
		_, err = b.client.PutObject(ctx, b.name, b.prefix+name, bytes.NewReader(begin.Bytes()), size, options)
	} else {
		_, err = b.client.PutObject(ctx, b.name, b.prefix+name, io.MultiReader(&begin, from), -1, options)
	}
	return b.fail(ctx, "write "+name, err)
}

func (b *bucket) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	core := minio.Core{Client: b.client}
	body, _, _, err := core.GetObject(ctx, b.name, b.prefix+name, minio.GetObjectOptions{})
	if err != nil {
		return nil, b.fail(ctx, "read "+name, err)
	}
	return &reader{ctx: ctx, from: body, fail: func(err error) error { return b.fail(ctx, "read "+name, err) }}, nil
}

func (b *bucket) List(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		for o := range b.client.ListObjectsIter(ctx, b.name, minio.ListObjectsOptions{Prefix: b.prefix + prefix, Recursive: true}) {
			if o.Err != nil {
				yield(Object{}, b.fail(ctx, "list objects", o.Err))
				return
			}
			name := strings.TrimPrefix(o.Key, b.prefix)
			if validName(name) && !yield(Object{Name: name, Size: o.Size, Changed: o.LastModified}, nil) {
				return
			}
		}
		if err := context.Cause(ctx); err != nil {
			yield(Object{}, err)
		}
	}
}

func (b *bucket) Partial(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel() // ends the goroutine that lists
		for o := range b.client.ListIncompleteUploads(ctx, b.name, b.prefix+prefix, true) {
			if minio.ToErrorResponse(o.Err).Code == minio.NotImplemented {
				return // a server that has none
			}
			if o.Err != nil {
				yield(Object{}, b.fail(ctx, "list unfinished uploads", o.Err))
				return
			}
			name := strings.TrimPrefix(o.Key, b.prefix)
			if validName(name) && !yield(Object{Name: name, Changed: o.Initiated}, nil) {
				return
			}
		}
		if err := context.Cause(ctx); err != nil {
			yield(Object{}, err)
		}
	}
}

func (b *bucket) Delete(ctx context.Context, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	err := b.client.RemoveObject(ctx, b.name, b.prefix+name, minio.RemoveObjectOptions{})
	if err == nil {
		err = b.client.RemoveIncompleteUpload(ctx, b.name, b.prefix+name)
	}
	switch minio.ToErrorResponse(err).Code {
	case minio.NoSuchKey, minio.NoSuchUpload, minio.NotImplemented:
		return nil
	}
	return b.fail(ctx, "delete "+name, err)
}

func (b *bucket) Close() error {
	b.transport.CloseIdleConnections()
	return nil
}

// fail says what an error of the server, or of the way to it, means. Those of ctx and of write are returned as they are.
func (b *bucket) fail(ctx context.Context, what string, err error) error {
	var own writeError
	switch {
	case err == nil || errors.As(err, &own):
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	var answer minio.ErrorResponse
	e := &locationError{kind: ErrRefused, from: err}
	if errors.As(err, &answer) && answer.StatusCode != 0 {
		if answer.Code == minio.NoSuchKey {
			return fmt.Errorf("%s in bucket %q at %s: %w", strings.TrimPrefix(what, "read "), b.name, b.endpoint, ErrNotFound)
		}
		var told bool
		if e.text, told = b.refusal(what, answer); !told {
			e.kind = answered(answer)
			e.text = fmt.Sprintf("%s in bucket %q at %s: %s: %.300s", what, b.name, b.endpoint, answer.Code, answer.Message)
		}
	} else if text, told := b.mistrust(err); told {
		e.text = text
	} else {
		var at *url.Error
		if errors.As(err, &at) { // it has the whole URL of the request
			err = at.Err
		}
		e.kind, e.text = ErrAway, fmt.Sprintf("%s in bucket %q at %s: %.300s", what, b.name, b.endpoint, err)
	}
	e.text = b.redact.Replace(e.text)
	return e
}

// answered tells from an answer that isn't known by its code whether a later request may get another one.
func answered(answer minio.ErrorResponse) error {
	switch status := answer.StatusCode; {
	case status == http.StatusRequestTimeout || status == http.StatusTooManyRequests || status == http.StatusConflict,
		status >= 500 && status != http.StatusNotImplemented, answer.Code == "RequestTimeout":
		return ErrAway
	}
	return ErrRefused
}

// refusal says what to change for an answer that a person has to do something about.
func (b *bucket) refusal(what string, answer minio.ErrorResponse) (text string, told bool) {
	where := fmt.Sprintf("bucket %q at %s", b.name, b.endpoint)
	switch answer.Code {
	case minio.NoSuchBucket, "InvalidBucketName":
		return where + " isn't there: make it, or name another in the URL", true
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidSecurity", "XAdminUserNotFound":
		return fmt.Sprintf("%s doesn't take the credentials (%s): give it another access key", where, answer.Code), true
	case "ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired":
		return fmt.Sprintf("%s doesn't take the session token (%s): give it a new one", where, answer.Code), true
	case "AccessDenied", "AllAccessDisabled", "AccountProblem", "UnauthorizedAccess":
		return fmt.Sprintf("%s doesn't permit these credentials to %s (%s): give them s3:ListBucket, ListBucketMultipartUploads, GetObject, "+
			"PutObject, DeleteObject and AbortMultipartUpload", where, what, answer.Code), true
	case "RequestTimeTooSkewed":
		return where + " has another time than this machine: set the clock of whichever is wrong", true
	case "AuthorizationHeaderMalformed", "InvalidRegion", "PermanentRedirect", "TemporaryRedirect", "IllegalLocationConstraintException":
		return fmt.Sprintf("%s is in another region than %q (%s %.50s): name it in the URL, region=…",
			where, b.region, answer.Code, answer.Region), true
	case "QuotaExceeded", "XMinioAdminBucketQuotaExceeded", "XMinioStorageFull", "InsufficientStorage", "ServiceQuotaExceeded":
		return fmt.Sprintf("%s has no room left (%s): free some, or have it hold more", where, answer.Code), true
	}
	if answer.StatusCode == http.StatusInsufficientStorage {
		return where + " has no room left: free some, or have it hold more", true
	}
	if answer.StatusCode == http.StatusBadRequest && strings.Contains(answer.Message, "HTTP request to an HTTPS server") {
		return fmt.Sprintf("%s wants TLS: begin the endpoint with https://", b.endpoint), true
	}
	return "", false
}

// mistrust says what to change for a server that can't be trusted to be the one that is meant.
func (b *bucket) mistrust(err error) (text string, told bool) {
	var (
		unknown x509.UnknownAuthorityError
		host    x509.HostnameError
		invalid x509.CertificateInvalidError
		alert   *tls.CertificateVerificationError
		plain   tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &unknown):
		return fmt.Sprintf("the certificate of %s isn't trusted: give the CA that signed it", b.endpoint), true
	case errors.As(err, &host), errors.As(err, &invalid), errors.As(err, &alert):
		return fmt.Sprintf("the certificate of %s isn't good: %v", b.endpoint, errors.Unwrap(err)), true
	case errors.As(err, &plain), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return fmt.Sprintf("%s doesn't speak TLS: begin the endpoint with http:// if all may be sent in the clear", b.endpoint), true
	}
	return "", false
}
