package kube

import (
	"bufio"
	"context"
	"net/http"
)

// longestLine bounds a line of [Client.Lines] in bytes.
const longestLine = 1 << 20

// Document decodes what the server answers in JSON on a path that is no object's, such as what it serves. Errors are those of
// [Client.Get].
func (c *Client) Document(ctx context.Context, path string, out any) error {
	return c.do(ctx, c.rest.Verb(http.MethodGet).MaxRetries(0).AbsPath(path), out)
}

// Lines reads what the server answers in plain text on a path that is no resource's, such as /metrics, and calls each with every line,
// which must not be kept. It holds one line at a time and lasts as long as more comes and ctx lets it. Errors are those of
// [Client.Get], and bufio.ErrTooLong.
func (c *Client) Lines(ctx context.Context, path string, each func(line []byte)) error {
	body, err := c.rest.Verb(http.MethodGet).MaxRetries(0).AbsPath(path).SetHeader("Accept", "text/plain").Stream(quiet(ctx))
	if err := c.classify(ctx, err); err != nil {
		return err
	}
	defer body.Close()
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		each(lines.Bytes())
	}
	return lines.Err()
}
