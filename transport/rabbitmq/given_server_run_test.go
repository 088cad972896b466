package rabbitmq_test

import (
	"context"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/internal/testserver/given"
	testserver "github.com/reprise-go/reprise/internal/testserver/rabbitmq"
)

// somebodysServer is a server that is given to the suite, with a virtual host that is not
// in use and one that is.
func somebodysServer(t *testing.T) (s *testserver.Server, vhost string) {
	t.Helper()
	s = testserver.StartFor(t, testserver.Config{Release: testserver.V4})
	used := s.NewVHost(t)
	for _, c := range []struct{ path, body string }{
		{"/api/queues/" + used + "/orders", `{"durable":true}`},
		{"/api/exchanges/" + used + "/nsb.v2.delay-delivery", `{"type":"topic","durable":true}`},
	} {
		if _, err := s.Manage(t.Context(), "PUT", c.path, c.body); err != nil {
			t.Fatal(err)
		}
	}
	return s, s.NewVHost(t)
}

// definitions returns all that a server was told to have, in lines.
func definitions(t *testing.T, s *testserver.Server) string {
	t.Helper()
	text, err := s.Manage(context.Background(), "GET", "/api/definitions", "")
	if err != nil {
		t.Fatal(err)
	}
	var kinds map[string]any
	if err := json.Unmarshal([]byte(text), &kinds); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for kind, all := range kinds {
		list, ok := all.([]any)
		if !ok {
			list = []any{all}
		}
		for _, one := range list {
			line, err := json.Marshal(one)
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, kind+" "+string(line))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func TestGivenServer_IsLeftAsItWas(t *testing.T) {
	if testing.Short() {
		t.Skip("a part of the suite on a server: not in short runs")
	}
	t.Parallel()
	s, vhost := somebodysServer(t)
	administrator := administratorURL(t, s)
	for _, c := range []struct {
		name, cases string
		management  string
		kill        bool
	}{
		{"in its virtual host, at the end of the tests", "^C19 (subscribing|Unsubscribe)", "", false},
		{"in its virtual host, when the tests are killed", "^C1", "", true}, // long before the last of them
		{"in virtual hosts of the run, when the tests are killed", "^C1", administrator, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := definitions(t, s)
			run := given.Start(t, "^TestConformance$/"+c.cases, givenVariable+"="+s.PasswordURL(vhost), managementVariable+"="+c.management)
			if c.kill {
				run.Await("they have made 20 things", func() bool {
					return strings.Count(definitions(t, s), "\n") >= strings.Count(before, "\n")+20
				})
				run.Kill()
			} else if err := run.End(); err != nil || !strings.Contains(run.Output(), "all that the run has made") {
				t.Errorf("the tests ended with %v:\n%s", err, run.Output())
			}
			if after := definitions(t, s); after != before {
				t.Errorf("the server was changed:\nbefore:\n%s\nafter:\n%s", before, after)
			}
			if strings.Contains(run.Output(), "s3cret") {
				t.Errorf("the password is in the output:\n%s", run.Output())
			}
		})
	}
	t.Run("or refused, with the fix", func(t *testing.T) { refusals(t, s, vhost) })
}

// administratorURL is that of the management API as guest.
func administratorURL(t *testing.T, s *testserver.Server) string {
	t.Helper()
	u, err := url.Parse(s.ManagementURL())
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("guest", "guest")
	return u.String()
}

// refusals are of servers that the suite cannot run on. No error has anything of a password.
func refusals(t *testing.T, s *testserver.Server, vhost string) {
	barred := s.NewVHost(t)
	if _, err := s.Manage(t.Context(), "PUT", "/api/permissions/"+barred+"/"+testserver.User, `{"configure":"^$","write":".*","read":".*"}`); err != nil {
		t.Fatal(err)
	}
	sound := s.PasswordURL(vhost)
	for _, c := range []struct {
		name, url, management string
		want                  string
	}{
		{"a user who may not configure", s.PasswordURL(barred), "", "to fix: rabbitmqctl set_permissions -p \"" + barred + "\" " + testserver.User},
		{"a virtual host that is in use", s.PasswordURL("test_1"), "", "is in use"},
		{"another password", strings.Replace(sound, "s3cret", "s3cret-no", 1), "", "403"},
		{"another scheme", "http" + strings.TrimPrefix(sound, "amqp"), "", `scheme "http"`},
		{"a password that is not escaped", "amqp://reprise:s3cret/pass@127.0.0.1/x", "", "%2F"},
		{"another password of the management API", sound, strings.Replace(s.ManagementURL(), "s3cret", "s3cret-no", 1), managementVariable},
		{"a management URL without a user", sound, "http://127.0.0.1:15672", "names no user"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := openGiven(c.url, c.management)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("the error is %v, which does not have %q", err, c.want)
			}
			if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the error %v has a part of the password", err)
			}
		})
	}
}
