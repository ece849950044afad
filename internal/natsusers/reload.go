package natsusers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
)

// Reload makes the server of a connection of user system read its configuration again. The server disconnects the portals that were removed,
// and no other client. Reload asks twice: the first reload of the server (2.15.2) adds new accounts, the second one makes their imports work.
func Reload(ctx context.Context, system *nats.Conn) error {
	for range 2 {
		if err := reload(ctx, system); err != nil {
			return err
		}
	}
	return nil
}

func reload(ctx context.Context, system *nats.Conn) error {
	m, err := system.RequestWithContext(ctx, "$SYS.REQ.SERVER."+system.ConnectedServerId()+".RELOAD", nil)
	if err != nil {
		return fmt.Errorf("reload of the NATS server: %w", err)
	}
	var answer struct {
		Error *struct {
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return fmt.Errorf("reload of the NATS server: %w", err)
	}
	if answer.Error != nil {
		return errors.New("the NATS server refused its configuration: " + answer.Error.Description)
	}
	return nil
}
