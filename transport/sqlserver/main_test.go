package sqlserver_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/reprise-go/reprise/conformance"
	"github.com/reprise-go/reprise/internal/testserver/given"
	"github.com/reprise-go/reprise/internal/testserver/postgres"
)

// server is for every test of the package that does not stop it. Each uses a
// separate database.
var server *postgres.Server

// needsPostgres is false where the tests of Microsoft SQL Server run, which are compiled
// with the build tag mssql.
var needsPostgres = true

func TestMain(m *testing.M) {
	if given.IsCleaner() {
		os.Exit(given.Clean(removeGiven))
	}
	for variable, overSQL := range map[string]bool{presenceVariable: false, presenceOverSQLVariable: true} {
		if url, ok := os.LookupEnv(variable); ok {
			fmt.Fprintln(os.Stderr, receiveAndHang(url, overSQL))
			os.Exit(1)
		}
	}
	if url, ok := os.LookupEnv(takeVariable); ok {
		fmt.Fprintln(os.Stderr, takeAndReplace(url))
		os.Exit(1)
	}
	_, child := os.LookupEnv(conformance.HarnessVariable) // which has its parent's servers
	if needsPostgres && !child && !given.IsListing() && !givenAlone() {
		var err error
		if server, err = postgres.Start(postgres.Config{Settings: map[string]string{
			"synchronous_commit": "off", // nothing kills it
		}}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		defer func() {
			if err := server.Stop(); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}()
	}
	conformance.Main(m, openInChild, limitParallel)
	if !child {
		leaveGiven()
	}
}

// notInShortRuns leaves out a test that takes much of the processor, or of time.
func notInShortRuns(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes long: not in short runs")
	}
}
