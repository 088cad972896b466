// Package inboxtest has the tests that a store of package inbox must pass: the promises of
// [inbox.Store], and those that an inbox on it makes to an endpoint.
//
//	func TestStore(t *testing.T) {
//		inboxtest.Run(t, func(t *testing.T) inboxtest.Database { return newDatabase(t) })
//	}
package inboxtest

import (
	"context"
	"testing"
	"time"

	"github.com/reprise-go/reprise/inbox"
)

// Database is an empty database for one test. Its methods may be called from several
// goroutines.
type Database interface {
	// Open returns a store. Each call stands for another process: it returns another store
	// with the same entries.
	Open(ctx context.Context) (inbox.Store, error)

	// Effect does what a handler does in the transaction that ctx carries: it adds a row with
	// this name. Its error is that of the statement.
	Effect(ctx context.Context, name string) error

	// Effects returns how many rows with this name are committed.
	Effects(ctx context.Context, name string) (int, error)
}

// patience is for what must happen. A test that needs it fails.
const patience = 2 * time.Minute

// Run runs all tests, each on a database that open returns for it. Stores that wait for
// each other's transactions need a database that lets more than 20 be open at a time.
func Run(t *testing.T, open func(t *testing.T) Database) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := c.check(ctx, open(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// testCase is one test. Its error says which promise was broken.
type testCase struct {
	name  string
	check func(ctx context.Context, db Database) error
}

var cases = []testCase{
	{"Commit_EntryAndEffectTogether", commitsTogether},
	{"Commit_KeepsOutgoing", keepsOutgoing},
	{"Commit_EndedContext", commitFails},
	{"Rollback_UndoesClaimAndEffect", rollsBack},
	{"Transaction_EndsWithCommitAndRollback", endsTransaction},
	{"Begin_TellsKeysApart", tellsKeysApart},
	{"Begin_WaitsForTheOtherCopy", waitsForOther},
	{"Begin_WaitIsBounded", waitIsBounded},
	{"MarkSent_DropsOutgoingAlone", marksSent},
	{"Remove_ByTheTimeOfWriting", removesByTime},
	{"Remove_DoesNotBlock", removeDoesNotBlock},
	{"Endpoint_DuplicateIsNotHandled", duplicateIsNotHandled},
	{"Endpoint_LostSendsAreRepeated", lostSendsAreRepeated},
	{"Endpoint_EachScopeHandles", eachScopeHandles},
	{"Endpoint_EachHandlerOnce", eachHandlerOnce},
	{"Endpoint_Verdicts", verdicts},
	{"Endpoint_CopiesAtOnce", copiesAtOnce},
}
