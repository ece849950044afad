package data

// Questions about data: which backups there are, what the way back begins with, and what a move would meet (prospect.go). Nothing secret is
// answered that isn't encrypted to the location's recipients.

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/stoker-k8s/stoker/pkg/api/event"
	"github.com/stoker-k8s/stoker/pkg/events"
	"github.com/stoker-k8s/stoker/services/datastore/backup"
)

// Questions are the endpoints about data, by name.
func (k *Keeper) Questions() map[string]events.Question {
	return map[string]events.Question{
		"backups": {Subject: event.QueryBackups, Timeout: backupsTimeout, Answer: k.answerBackups},
		"backup":  {Subject: event.QueryBackup, Timeout: backupsTimeout, Answer: k.answerBackup},
		"move":    {Subject: event.QueryMove, Timeout: moveTimeout, Answer: k.answerMove},
	}
}

// answerBackups lists the backups in a location.
func (k *Keeper) answerBackups(ctx context.Context, question []byte) (any, error) {
	var q event.BackupsQuery
	if err := json.Unmarshal(question, &q); err != nil || q.Location == "" || (q.Namespace == "") != (q.Name == "") {
		return nil, &events.Refusal{Code: "400", Message: `send {"location":"…"} or {"location":"…","namespace":"…","name":"…"}`}
	}
	location, _, err := k.location(ctx, q.Location)
	if err != nil {
		return nil, locationRefusal(err)
	}
	defer func() { _ = location.Close() }()
	made, unreadable, err := backup.List(ctx, location, q.Namespace, q.Name)
	if err != nil {
		return nil, locationRefusal(err)
	}
	reply := event.BackupsReply{Backups: []event.BackupThere{}}
	for _, u := range unreadable {
		reply.Unreadable = append(reply.Unreadable, u.Path+": "+u.Err.Error())
	}
	if reply.More = max(len(made)-event.MaxBackups, 0); reply.More > 0 {
		made = made[:event.MaxBackups]
	}
	for _, m := range made {
		reply.Backups = append(reply.Backups, backupThere(q.Location, m))
	}
	return reply, nil
}

// answerBackup answers what the way back from a backup begins with.
func (k *Keeper) answerBackup(ctx context.Context, question []byte) (any, error) {
	var q event.BackupQuery
	if err := json.Unmarshal(question, &q); err != nil || q.Location == "" || q.Namespace == "" || q.Name == "" || q.ID == "" {
		return nil, &events.Refusal{Code: "400", Message: `send {"location":"…","namespace":"…","name":"…","id":"…"}`}
	}
	location, _, err := k.location(ctx, q.Location)
	if err != nil {
		return nil, locationRefusal(err)
	}
	defer func() { _ = location.Close() }()
	m, err := backup.Get(ctx, location, q.Namespace, q.Name, q.ID)
	if err != nil {
		return nil, locationRefusal(err)
	}
	keys, err := backup.KeysOf(ctx, location, m)
	if err != nil {
		return nil, locationRefusal(err)
	}
	return event.BackupReply{Backup: backupThere(q.Location, m), Object: m.Object, Keys: keys}, nil
}

// locationRefusal is how it is answered that a location can't be read.
func locationRefusal(err error) error {
	if errors.Is(err, backup.ErrNotFound) || errors.Is(err, errNoLocation) {
		return &events.Refusal{Code: "404", Message: err.Error()}
	}
	return &events.Refusal{Code: "502", Message: err.Error()}
}

func backupThere(location string, m backup.Manifest) event.BackupThere {
	return event.BackupThere{
		Location: location, Namespace: m.Tenant.Namespace, Name: m.Tenant.Name, ID: m.ID, UID: m.Tenant.UID,
		Kubernetes: m.Kubernetes, DataStore: m.DataStore, Driver: m.Driver, Revision: m.Revision, Keys: m.Keys, Bytes: m.Bytes, Size: m.Size,
		Scheduled: m.Scheduled, Began: m.Began, Ended: m.Ended, Recipients: m.Recipients,
	}
}
