package sqlserver_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/transport/sqlserver"
)

// TestConfig_RefusedURLs: the error says what is wrong where, and has no part of a
// password in it, wherever the mistake puts that.
func TestConfig_RefusedURLs(t *testing.T) {
	t.Parallel()
	const app = "postgres://app:hunter2@h"
	const path = "/queues"
	for name, c := range map[string]struct {
		url  string
		want []string
	}{
		"of another product":                {"mysql://app:hunter2@h/queues", []string{`the scheme "mysql"`, "postgres://", "sqlserver://"}},
		"without a scheme":                  {"app:hunter2@h/queues", []string{"begin it with postgres:// or sqlserver://"}},
		"without slashes":                   {"postgres:app:hunter2@h/queues", []string{"begin it with postgres://"}},
		"a list of keys and values":         {"host=h password=hunter2 dbname=queues", []string{"begin it with postgres://", "key=value"}},
		"a space before it":                 {" " + app + path, []string{"begins or ends with a space"}},
		"a line break after it":             {app + path + "\n", []string{"begins or ends with", "line break"}},
		"a line break in it":                {app + "\n" + path, []string{"control character"}},
		"a space in the host":               {app + " o" + path, []string{`the host "h o"`}},
		"a port that is no number":          {app + ":54x2" + path, []string{`the port in "h:54x2"`, "number"}},
		"a port that is too large":          {app + ":99999" + path, []string{`the port in "h:99999"`, "65535"}},
		"port 0":                            {app + ":0" + path, []string{`the port in "h:0"`, "65535"}},
		"a bad port of the first host":      {app + ":0,g:1" + path, []string{`the port in "h:0"`}},
		"a host without port after another": {app + ":1,g" + path, []string{`the port in "h:1,g"`, "each has its port"}},
		"a bad port without a user":         {"postgres://h:99999/queues", []string{"a port is not a number from 1 to 65535"}},
		"a slash in the password":           {"postgres://app:hun/ter2@h/queues", []string{"%2F"}},
		"a slash after a number":            {"postgres://app:12/ter2@h/queues", []string{"%2F"}},
		"a question mark in the password":   {"postgres://app:hun?ter2@h/queues", []string{"%3F"}},
		"a hash in the password":            {"postgres://app:hun#ter2@h/queues", []string{"%23"}},
		"a hash after a number":             {"postgres://app:12#ter2@h/queues", []string{"%23"}},
		"an at and a slash in the password": {"postgres://app:hun@x:ter2/hunter2@h/queues", []string{"%40"}},
		"a percent sign in the password":    {"postgres://app:hun%ter2@h/queues", []string{"a % itself is written as %25"}},
		"a space in the password":           {"postgres://app:hun ter2@h/queues", []string{"percent-encoded", "%20"}},
		"a percent sign in an option":       {app + path + "?password=hun%ter2", []string{"in its options", "%25"}},
		"options separated by a semicolon":  {app + path + "?pool_max_conns=1;password=hunter2", []string{"separated by &"}},
		"pool_max_conns that is no number":  {app + path + "?pool_max_conns=x", []string{"the option pool_max_conns must be a whole number of at least 1"}},
		"pool_max_conns of 0":               {app + path + "?pool_max_conns=0", []string{"the option pool_max_conns must be a whole number of at least 1"}},
		"pool_min_conns below 0":            {app + path + "?pool_min_conns=-1", []string{"the option pool_min_conns must be a whole number"}},
		"connect_timeout with a unit":       {app + path + "?connect_timeout=3s", []string{"the option connect_timeout must be a whole number of seconds"}},
		"a duration without a unit":         {app + path + "?pool_max_conn_lifetime=3", []string{"the option pool_max_conn_lifetime must be a duration", `"1h30m"`}},
		"an sslmode that there is not":      {app + path + "?sslmode=yes", []string{"the option sslmode must be one of disable,", "verify-full"}},
		"a file that there is not":          {app + path + "?sslmode=verify-full&sslrootcert=/nowhere.crt", []string{"sslrootcert", "unable to read CA file: no such file"}},
		"target_session_attrs":              {app + path + "?target_session_attrs=both", []string{"the option target_session_attrs must be one of any, read-write"}},
		"the password as an option":         {"postgres://app@h/queues?password=hunter2&pool_max_conns=hunter2", []string{"the option pool_max_conns"}},
		"an at and a slash after a number":  {"postgres://app:hun@12/ter2@h/queues", []string{"%40"}},
		"an at and a question mark":         {"postgres://app:hun@12?ter2@h/queues", []string{"%40"}},
		"a question mark after a number":    {"postgres://app:12?a=ter2@h/queues", []string{"%3F"}},
		"an at in an option":                {app + path + "?password=hun@ter2", []string{"%40"}},
		"an at in an option and no path":    {"postgres://?user=app&password=hun@ter2", []string{"%40"}},
		"a hash at the end":                 {app + path + "#", []string{"%23"}},
		"an ampersand in an option":         {app + path + "?password=hun&ter2", []string{"name=value", "%26"}},
		"an equals sign in an option":       {app + path + "?password=hun=ter2", []string{"name=value", "%3D"}},
		"a plus in an option":               {app + path + "?password=hun+ter2&pool_max_conns=hun+ter2", []string{"the option pool_max_conns"}},
		"an option twice, the first wrong":  {app + path + "?connect_timeout=hunter2&connect_timeout=3", []string{"the option connect_timeout"}},
		"a list of several ports":           {app + path + "?port=1,2", []string{"could not match"}},
		"a port that is an option":          {app + path + "?port=hunter2", []string{"invalid port"}},
		"a service that there is not":       {app + path + "?service=hunter2&servicefile=/hunter2", []string{"failed to read service"}},
		"no database":                       {"sqlserver://app:hunter2@h", []string{"names no database", "database=name"}},
		"the database as the path":          {"sqlserver://app:hunter2@h/queues", []string{"names no database", "database=name", "instance"}},
		"a timeout that is no number":       {"sqlserver://app:hunter2@h?database=queues&dial+timeout=x", []string{"invalid dial timeout"}},
		"encrypt":                           {"sqlserver://app:hunter2@h?database=queues&encrypt=hunter2", []string{"encrypt"}},
		"an option twice":                   {"sqlserver://app:hunter2@h?database=queues&Database=queues", []string{"the option database is there several times"}},
		"sqlserver with a bad port":         {"sqlserver://app:hunter2@h:0?database=queues", []string{`the port in "h:0"`}},
	} {
		cfg := sqlserver.Config{URL: c.url, Experimental: sqlserver.MicrosoftSQLServer}
		transport, err := sqlserver.New(cfg)
		if err == nil {
			t.Errorf("%s: there is no error", name)
			closed(t, transport)
			continue
		}
		for _, want := range append(c.want, "sqlserver: open: Config.URL") {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", name, err, want)
			}
		}
		for _, part := range []string{"hun", "ter2", "12"} {
			for _, shown := range []string{err.Error(), cfg.String(), fmt.Sprintf("%#v", cfg)} {
				if strings.Contains(shown, part) {
					t.Errorf("%s: %q has a part of the password in it", name, shown)
				}
			}
		}
	}
}

// TestConfig_AcceptedURLs: what the client libraries understand is not for us to
// forbid.
func TestConfig_AcceptedURLs(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"postgres://",
		"postgres:///queues",
		"postgresql://h",
		"postgres://app@h/queues",
		"postgres://app:hunter%2F2%40@h/queues?sslmode=disable",
		"postgres://app:hunter@2@h/queues",
		"postgres://[::1]:5432/queues",
		"postgres://g:5432,h:5433/queues?target_session_attrs=read-write",
		"postgres:///queues?host=/var/run/postgresql&user=app@cloud",
		"postgres://h/queues?application_name=billing&options=-c%20lock_timeout%3D1s",
		"postgres://h/queues?connect_timeout=0&pool_max_conns=1&pool_min_conns=0&pool_max_conn_lifetime=1h30m",
		"sqlserver://",
		"sqlserver://app:hunter2@h?database=queues",
		"sqlserver://app:hunter2@h/instance?Database=queues",
		"sqlserver://app:hunter2@h:1433?database=queues&dial+timeout=5",
	} {
		transport, err := sqlserver.New(sqlserver.Config{URL: url, Experimental: sqlserver.MicrosoftSQLServer})
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		closed(t, transport)
	}
}

// TestConfig_DatabaseOfMicrosoftSQLServer is in addresses, however it was named.
func TestConfig_DatabaseOfMicrosoftSQLServer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cfg  sqlserver.Config
		want string
	}{
		{sqlserver.Config{URL: "sqlserver://h?database=shop"}, "orders@[dbo]@[shop]"},
		{sqlserver.Config{URL: "sqlserver://h?DATABASE=shop"}, "orders@[dbo]@[shop]"},
		{sqlserver.Config{URL: "sqlserver://h", Database: "shop"}, "orders@[dbo]@[shop]"},
	} {
		c.cfg.Experimental = sqlserver.MicrosoftSQLServer
		transport, err := sqlserver.New(c.cfg)
		if err != nil {
			t.Errorf("%v: %v", c.cfg, err)
			continue
		}
		if got, err := transport.Address("orders"); got != c.want || err != nil {
			t.Errorf("%v: address %q, %v, want %q", c.cfg, got, err, c.want)
		}
		closed(t, transport)
	}
}
