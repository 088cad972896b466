package sqlserver_test

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/reprise-go/reprise/internal/testserver/given"
	"github.com/reprise-go/reprise/internal/testserver/postgres"
)

// somebodysServer is a server that is given to the suite: a role that may create schemas in
// one database, which is in use. It has connections for two tests at a time.
func somebodysServer(t *testing.T) (s *postgres.Server, database string) {
	t.Helper()
	const reserved, others = 3, 6 // others are those of the test, and autovacuum
	connections := connectionsBesideTests + 2*connectionsOfTest + reserved + others
	s = postgres.StartFor(t, postgres.Config{Settings: map[string]string{"max_connections": strconv.Itoa(connections)}})
	database = s.NewDatabase(t)
	if _, err := s.Exec(t.Context(), database, `create table orders (id int primary key); insert into orders values (1);
create schema reprise_testing; create table reprise_testing.work (key text)`); err != nil {
		t.Fatal(err)
	}
	return s, database
}

// catalog returns all that a server has in its catalog, and the rows of the tables in use.
func catalog(t *testing.T, s *postgres.Server, database string) string {
	t.Helper()
	rows, err := s.Exec(context.Background(), database, `select 'database', datname, datacl::text from pg_database union all
select 'role', rolname, rolconfig::text from pg_roles union all
select 'schema', nspname, nspacl::text from pg_namespace where nspname !~ '^pg_(toast_)?temp_' union all
select 'table', relnamespace::regnamespace || '.' || relname, relacl::text from pg_class where relnamespace::regnamespace::text !~ '^pg_' union all
select 'function', pronamespace::regnamespace || '.' || proname, proacl::text from pg_proc union all
select 'setting', setdatabase || ' ' || setrole, setconfig::text from pg_db_role_setting union all
select 'order', id::text, '' from orders
order by 1, 2, 3`)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// onlySchemas takes from the role what it does not need: it owns the database.
func onlySchemas(t *testing.T, s *postgres.Server, database string) {
	t.Helper()
	if _, err := s.Exec(t.Context(), database, `alter database "`+database+`" owner to postgres; revoke all on database "`+database+`" from public;
grant connect, create on database "`+database+`" to `+postgres.User); err != nil {
		t.Fatal(err)
	}
}

// tooManyConnections matches the messages of PostgreSQL with the SQLSTATE 53300.
var tooManyConnections = regexp.MustCompile(`FATAL: .*(too many (clients|connections)|remaining connection slots).*`)

func TestGivenServer_IsLeftAsItWas(t *testing.T) {
	if testing.Short() {
		t.Skip("a part of the suite on a server: not in short runs")
	}
	t.Parallel()
	s, database := somebodysServer(t)
	onlySchemas(t, s, database)
	for _, c := range []struct {
		name, cases string
		kill        bool
	}{
		{"at the end of the tests", "$/^C19 (a queue that subscribes|Unsubscribe|an event|eight)", false}, // which have many connections
		{"at the end of tests with a connection for each message", "_NServiceBusTables$/^(C3 Receive (returns|may)|C9 an instance counts|C12 CompleteWith)", false},
		{"when the tests are killed", "$/^C1", true}, // long before the last of them
	} {
		t.Run(c.name, func(t *testing.T) {
			before := catalog(t, s, database)
			run := given.Start(t, "^TestConformance"+c.cases, givenVariable+"="+s.PasswordURL(database))
			if c.kill {
				run.Await("they have made 20 things", func() bool {
					return strings.Count(catalog(t, s, database), "\n") >= strings.Count(before, "\n")+20
				})
				run.Kill()
			} else if err := run.End(); err != nil || !strings.Contains(run.Output(), "all that the run has made") {
				t.Errorf("the tests ended with %v:\n%s", err, run.Output())
			}
			if after := catalog(t, s, database); after != before {
				t.Errorf("the server was changed:\nbefore:\n%s\nafter:\n%s", before, after)
			}
			if refused := tooManyConnections.FindString(s.Log()); refused != "" {
				t.Errorf("the tests wanted more connections than the server has: %s", refused)
			}
			if strings.Contains(run.Output(), postgres.Password) || strings.Contains(run.Output(), "s3cret") {
				t.Errorf("the password is in the output:\n%s", run.Output())
			}
		})
	}
}

// A given server that the suite cannot run on is refused with what to do, and nothing of a
// password.
func TestGivenServer_RefusalSaysHowToFix(t *testing.T) {
	t.Parallel()
	database := server.NewDatabase(t)
	if _, err := server.Exec(t.Context(), database, `alter database "`+database+`" owner to postgres`); err != nil {
		t.Fatal(err)
	}
	sound := server.PasswordURL(database)
	small := server.NewDatabase(t)
	if _, err := server.Exec(t.Context(), small, `alter database "`+small+`" connection limit 20`); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, url string
		want      string
	}{
		{"a role that may not create schemas", sound, `to fix: grant create on database ` + pgx.Identifier{database}.Sanitize()[1:len(database)+1] + ` to reprise`},
		{"another password", strings.Replace(sound, "s3cret", "s3cret-no", 1), "password authentication failed"},
		{"too few connections", strings.Replace(sound, database, small, 1), "room for 19 more connections"},
		{"another scheme", "mysql" + strings.TrimPrefix(sound, "postgres"), `scheme "mysql"`},
		{"a password that is not escaped", "postgres://reprise:s3cret/pass@127.0.0.1/x", "%2F"},
		{"a database that does not exist", strings.Replace(sound, database, "nothing", 1), `"nothing" does not exist`},
		{"a value of an option that pgx would quote", sound + "&connect_timeout=s3cret", "connect_timeout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := openGiven(c.url)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("the error is %v, which does not have %q", err, c.want)
			}
			if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the error %v has a part of the password", err)
			}
		})
	}
}
