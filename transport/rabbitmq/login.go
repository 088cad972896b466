package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/transport"
)

// logIn sets the user and the password of the next connection, if Config.Credentials has
// them, and returns the end of their validity. An error of it is an outage.
func (t *Transport) logIn(ctx context.Context, uri *amqp.URI) (expires time.Time, err error) {
	if t.cfg.Credentials == nil {
		return time.Time{}, nil
	}
	defer func() {
		if v := recover(); v != nil {
			err = transport.Permanent(fmt.Errorf("Config.Credentials panicked: %v", v))
		}
	}()
	uri.Username, uri.Password, expires, err = t.cfg.Credentials(ctx)
	switch {
	case err != nil:
		return time.Time{}, fmt.Errorf("Config.Credentials: %w", err)
	case !expires.IsZero() && !time.Now().Before(expires):
		return time.Time{}, fmt.Errorf("Config.Credentials returned credentials of %q that have expired at %v", uri.Username, expires)
	}
	return expires, nil
}

// renew gives a connection new credentials each time before the earlier ones expire, as long
// as it is open. If that fails the connection is closed when they expire: the next one begins
// with new credentials, and observers are told if there are none.
func (t *Transport) renew(conn *connection, uri amqp.URI, expires time.Time) {
	closed := conn.NotifyClose(make(chan *amqp.Error, 1))
	t.life.Go(func() {
		timer := time.NewTimer(0)
		defer timer.Stop()
		for {
			left := time.Until(expires)
			if left <= 0 {
				closeConnection(conn, time.Now().Add(grace))
				return
			}
			timer.Reset(max(left-left/renewAhead, min(left, renewPause)))
			select {
			case <-timer.C:
			case <-closed: //nolint:errcheck // why does not matter
				return
			case <-t.life.Context().Done():
				return
			}
			ctx, cancel := context.WithTimeout(t.life.Context(), operationTimeout)
			next, err := t.updateSecret(ctx, conn, uri)
			cancel()
			if err == nil && next.IsZero() {
				return
			}
			if err == nil {
				expires = next
			}
		}
	})
}

const (
	// renewAhead is the part of the validity of credentials that is left when they are
	// renewed: a fifth. After an error it is a fifth of the rest, and so on.
	renewAhead = 5
	// renewPause is the shortest pause between two calls of Config.Credentials.
	renewPause = time.Second
)

// updateSecret tells the broker the next password or token on an open connection.
func (t *Transport) updateSecret(ctx context.Context, conn *connection, uri amqp.URI) (expires time.Time, err error) {
	user := uri.Username
	if expires, err = t.logIn(ctx, &uri); err != nil {
		return time.Time{}, err
	}
	if uri.Username != user {
		return time.Time{}, errors.New("another user needs another connection")
	}
	err = t.runWithContext(ctx, func() error { return conn.UpdateSecret(uri.Password, "the previous one expires") })
	return expires, err
}
