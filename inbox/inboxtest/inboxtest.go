// Package inboxtest has the tests that a store of package inbox must pass: of the
// guarantees of [inbox.Store], and of those that an inbox with the store gives an
// endpoint.
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
	// Open returns a store. Each call stands for another process: it returns a new store
	// with the same entries.
	Open(ctx context.Context) (inbox.Store, error)

	// Effect stands for a handler's write in the transaction in ctx: it adds a row with
	// this name. It returns the error of the statement.
	Effect(ctx context.Context, name string) error

	// Effects returns the number of committed rows with this name.
	Effects(ctx context.Context, name string) (int, error)
}

// patience is how long to wait for an expected event before the test fails.
const patience = 2 * time.Minute

// Run runs all tests, each on a database that open returns for it. If transactions of the
// store wait for each other, the database must allow more than 20 open at the same time.
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

// testCase is one test. Its error names the broken guarantee.
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
