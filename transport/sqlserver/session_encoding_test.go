package sqlserver_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// givenSessions returns the configurations with which a program passes sessions of a URL to a transport.
func givenSessions(t *testing.T, rawURL string) map[string]sqlserver.Config {
	t.Helper()
	return map[string]sqlserver.Config{"URL": {URL: rawURL}, "Pool": {Pool: poolOf(t, rawURL)}, "DB": {DB: openDB(t, rawURL)}}
}

// wantRefusedSessions fails unless each operation of a transport is refused for good, with an error
// that has all texts.
func wantRefusedSessions(t *testing.T, transport *sqlserver.Transport, texts ...string) {
	t.Helper()
	ctx := t.Context()
	for name, err := range map[string]error{
		"Check":           transport.Check(ctx, core.Topology{InputQueue: "q", Queues: []string{"q"}}),
		"Check of no one": transport.Check(ctx, core.Topology{}),
		"Provision":       transport.Provision(ctx, core.Topology{InputQueue: "q", Queues: []string{"q"}}),
		"Send":            transport.Send(ctx, letter("1", "q")),
		"Send of several": transport.Send(ctx, letter("1", "q"), letter("2", "other")),
		"Subscribe":       transport.Subscribe(ctx, "q", "topic"),
		"OpenReceiver":    second(transport.OpenReceiver(ctx, core.ReceiverConfig{Queue: "q", Mode: core.TransactionReceiveOnly, MaxInFlight: 1})),
	} {
		if err == nil || errors.Is(err, core.ErrUnavailable) {
			t.Errorf("%s: %v, want a permanent error", name, err)
			continue
		}
		for _, text := range texts {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v, want one with %q", name, err, text)
			}
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestEncoding_OfTheDatabase: no encoding but UTF-8 has all characters, so that a header, an address
// or the text of a failure could not be stored.
func TestEncoding_OfTheDatabase(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	for _, encoding := range []string{"LATIN1", "WIN1252", "EUC_JP", "SQL_ASCII"} {
		t.Run(encoding, func(t *testing.T) {
			t.Parallel()
			name := "encoding_" + strings.ToLower(encoding)
			quoted := pgx.Identifier{name}.Sanitize()
			ctx := context.WithoutCancel(t.Context())
			if _, err := server.Exec(ctx, "postgres", fmt.Sprintf(`create database %s encoding '%s' lc_collate 'C' lc_ctype 'C' template template0`, quoted, encoding)); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if _, err := server.Exec(ctx, "postgres", `drop database `+quoted+` with (force)`); err != nil {
					t.Error(err)
				}
			})
			for name, cfg := range givenSessions(t, server.PasswordURL(name)) {
				t.Run(name, func(t *testing.T) {
					wantRefusedSessions(t, open(t, cfg), "encoding "+encoding, "create database NAME encoding 'UTF8' template template0")
				})
			}
		})
	}
}

// TestEncoding_OfGivenSessions: the program has to set it, since its own text is garbled too. A
// transport that opens the sessions sets it (TestSession_EverySetting).
func TestEncoding_OfGivenSessions(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	role, rawURL := db.role(t)
	if _, err := server.Exec(t.Context(), db.name, `alter role `+role+` set client_encoding = 'LATIN1'; grant all on schema public to `+role); err != nil {
		t.Fatal(err)
	}
	for name, cfg := range givenSessions(t, rawURL) {
		t.Run(name, func(t *testing.T) {
			if cfg.URL == "" {
				wantRefusedSessions(t, open(t, cfg), "client_encoding LATIN1", "set client_encoding=UTF8 in the URL")
			}
			if cfg.URL = withOptions(t, rawURL, "client_encoding", "UTF8"); cfg.Pool != nil {
				cfg.URL, cfg.Pool = "", poolOf(t, cfg.URL)
			} else if cfg.DB != nil {
				cfg.URL, cfg.DB = "", openDB(t, cfg.URL)
			}
			if err := open(t, cfg).Check(t.Context(), core.Topology{}); err != nil {
				t.Errorf("with the fix: %v", err)
			}
		})
	}
}

// TestEncoding_OfACallersTransaction: it may be from any pool.
func TestEncoding_OfACallersTransaction(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	transport := db.open(t, sqlserver.Config{})
	provision(t, transport, "q")
	if err := transport.Subscribe(t.Context(), "q", "topic"); err != nil {
		t.Fatal(err)
	}
	rawURL := withOptions(t, db.url, "client_encoding", "LATIN1")
	tx, err := poolOf(t, rawURL).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	event := letter("1", "")
	event.Topic = "topic"
	for _, out := range []core.Outgoing{letter("1", "q"), event} {
		sqlTx, err := openDB(t, rawURL).BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, ctx := range map[string]context.Context{"WithTx": sqlserver.WithTx(t.Context(), tx), "WithSQLTx": sqlserver.WithSQLTx(t.Context(), sqlTx)} {
			if err := transport.Send(ctx, out); err == nil || !strings.Contains(err.Error(), "client_encoding LATIN1") {
				t.Errorf("%s to %q: %v, want an error about client_encoding", name, out.Queue+out.Topic, err)
			}
		}
		if err := sqlTx.Rollback(); err != nil {
			t.Error(err)
		}
	}
}
