package etcd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// etcd writes to pages of its file that compaction freed before the file grows, and never gives the file back. But it raises NOSPACE by how
// large the file is, so an etcd whose file once grew to its quota refuses writes with most of it free. A member answers nobody while it is
// defragmented, which takes seconds for each gigabyte in use, so this is done only when it is that or refusing writes soon.
const (
	// fileFilling is the part of its quota from which a member's file counts as filling, freeEnough the part of the file that must be free then.
	fileFilling, freeEnough = 0.8, 0.25
	// defragmentTimeout bounds the wait for one member, which goes on by itself after that.
	defragmentTimeout = 5 * time.Minute
)

// member is what one of the members says of itself.
type member struct {
	endpoint     string
	leads        bool
	size, in, of int64 // of its file, of what is in use, of its quota, which v3.6 and later tell
}

// roomy reports whether a member takes writes, or would without its alarm.
func (m member) roomy() bool { return float64(m.size) < nearlyFull*float64(m.of) }

// mostlyFree reports whether a member's file is filling with free pages.
func (m member) mostlyFree() bool {
	return m.of > 0 && float64(m.size) >= fileFilling*float64(m.of) && float64(m.in) <= (1-freeEnough)*float64(m.size)
}

// defragment makes files smaller that are filling with free pages, the leader's last, and has a full etcd take writes again when there is room.
// It returns what it did, empty for nothing. One member at a call, and none while another is away, keeps the others answering; if etcd refuses
// writes, all have their turn at once.
func (e *etcd) defragment(ctx context.Context) (did string, err error) {
	var done []string
	for {
		members := e.members(ctx)
		full := e.full(ctx)
		one := slices.IndexFunc(members, func(m member) bool {
			// One that is full commits nothing, and so doesn't say what compaction freed: it is known only that it was compacted since.
			return m.mostlyFree() || full && m.of > 0 && !m.roomy() && e.compaction.compacted > e.compaction.defragmented[m.endpoint]
		})
		if one < 0 {
			if full && len(members) > 0 && !slices.ContainsFunc(members, func(m member) bool { return !m.roomy() }) {
				_, err = within(ctx, func(ctx context.Context) (*clientv3.AlarmResponse, error) {
					return e.client.AlarmDisarm(ctx, &clientv3.AlarmMember{})
				})
				done = append(done, "alarm NOSPACE disarmed, for there is room again")
			}
			break
		}
		e.compaction.defragmented[members[one].endpoint] = e.compaction.compacted
		var what string
		if what, err = e.defragmentOne(ctx, members[one]); err != nil {
			break
		}
		if done = append(done, what); !full {
			break
		}
	}
	return strings.Join(done, "; "), err
}

// members are all, those that don't lead first; none if one doesn't answer.
func (e *etcd) members(ctx context.Context) (all []member) {
	for _, endpoint := range e.client.Endpoints() {
		status, err := within(ctx, func(ctx context.Context) (*clientv3.StatusResponse, error) { return e.client.Status(ctx, endpoint) })
		if err != nil {
			return nil
		}
		m := member{endpoint, status.Leader == status.Header.MemberId, status.DbSize, status.DbSizeInUse, status.DbSizeQuota}
		if m.leads {
			all = append(all, m)
		} else {
			all = slices.Insert(all, 0, m)
		}
	}
	return all
}

// defragmentOne defragments a member and returns what that came to.
func (e *etcd) defragmentOne(ctx context.Context, m member) (string, error) {
	began := time.Now()
	working, cancel := context.WithTimeout(ctx, defragmentTimeout)
	defer cancel()
	at := strings.TrimPrefix(m.endpoint, "https://")
	if _, err := e.client.Defragment(working, m.endpoint); err != nil {
		return "", fmt.Errorf("defragment %s: %w", at, err)
	}
	took := time.Since(began).Round(time.Millisecond)
	after, err := within(ctx, func(ctx context.Context) (*clientv3.StatusResponse, error) { return e.client.Status(ctx, m.endpoint) })
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s defragmented in %s: its file had %d MiB and has %d, of a quota of %d", at, took, m.size>>20, after.DbSize>>20, m.of>>20), nil
}
