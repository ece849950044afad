package nats

import (
	"context"
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// detailPage is how many accounts a server tells of in one answer, detailWait how long servers of a cluster are waited
// for that say nothing.
const (
	detailPage = 500
	detailWait = time.Second
)

// bucketDetail is what servers tell of a bucket.
type bucketDetail struct {
	State  jetstream.StreamState `json:"state"`
	Config json.RawMessage       `json:"config"`
}

// buckets looks at those of some schemas, by few questions for all of them. take isn't called for what isn't there.
func (s *server) buckets(ctx context.Context, p place, schemas []string, take func(schema string, d bucketDetail)) error {
	if s.login.operator != nil {
		return p.accounts(ctx, schemas, take)
	}
	for _, schema := range schemas {
		stream, err := p.js.Stream(ctx, streamOf(schema))
		if codeOf(err) == codeNoSuchStream {
			continue
		}
		if err != nil {
			return err
		}
		config, err := json.Marshal(comparable(stream.CachedInfo().Config))
		if err != nil {
			return err
		}
		take(schema, bucketDetail{stream.CachedInfo().State, config})
	}
	return nil
}

// accounts asks for the buckets of accounts. Each server of a cluster tells of those that it leads.
func (p place) accounts(ctx context.Context, schemas []string, take func(schema string, d bucketDetail)) error {
	names := map[string]string{}
	for _, schema := range schemas {
		names[accountOf(schema)] = schema
	}
	question := map[string]any{"accounts": true, "streams": true, "config": true, "stream_leader_only": true, "limit": detailPage}
	if len(schemas) == 1 {
		question["account"] = accountOf(schemas[0])
		question["accounts"] = false // if there is none of that name, then not all others
	}
	for offset, more := 0, len(schemas) > 0; more; offset += detailPage {
		more, question["offset"] = false, offset
		err := p.ask(ctx, question, func(data []byte) (servers int, err error) {
			var answer struct {
				Data struct {
					Meta *struct {
						Size int `json:"cluster_size"`
					} `json:"meta_cluster"`
					Accounts []struct {
						ID      string `json:"id"`
						Streams []struct {
							Name string `json:"name"`
							bucketDetail
						} `json:"stream_detail"`
					} `json:"account_details"`
				} `json:"data"`
			}
			if err := json.Unmarshal(data, &answer); err != nil {
				return 0, err
			}
			more = more || len(answer.Data.Accounts) == detailPage
			for _, account := range answer.Data.Accounts {
				schema, ours := names[account.ID]
				for _, stream := range account.Streams {
					if ours && stream.Name == streamOf(schema) {
						take(schema, stream.bucketDetail)
					}
				}
			}
			if answer.Data.Meta == nil {
				return 1, nil
			}
			return answer.Data.Meta.Size, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// ask has every server answer. take returns how many there are; those that are slow to answer are not waited for.
func (p place) ask(ctx context.Context, question any, take func([]byte) (servers int, err error)) error {
	data, err := json.Marshal(question)
	if err != nil {
		return err
	}
	inbox := p.system.NewInbox()
	answers, err := p.system.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer func() { _ = answers.Unsubscribe() }()
	if err := p.system.PublishMsg(&nats.Msg{Subject: subjectDetail, Reply: inbox, Data: data}); err != nil {
		return err
	}
	for n, servers := 0, 1; n < servers; n++ {
		wait, cancel := ctx, context.CancelFunc(func() {})
		if n > 0 {
			wait, cancel = context.WithTimeout(ctx, detailWait)
		}
		answer, err := answers.NextMsgWithContext(wait)
		cancel()
		if err != nil {
			if n > 0 && ctx.Err() == nil {
				return nil
			}
			return asked(err)
		}
		if servers, err = take(answer.Data); err != nil {
			return err
		}
	}
	return nil
}
