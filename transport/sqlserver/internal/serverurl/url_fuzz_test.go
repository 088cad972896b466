package serverurl

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/reprise-go/reprise/internal/planted"
)

// FuzzRead plants a secret into URLs, and looks for it in the errors. Where a URL is read,
// pgx finds the same parts in the text that it gets.
func FuzzRead(f *testing.F) {
	for _, odd := range planted.Oddities() {
		f.Add("app", odd, "queues", "application_name=shop&sslmode=disable")
		f.Add("", odd, odd, "password="+odd)
		f.Add("app", "", "", odd+"=1")
	}
	f.Fuzz(func(t *testing.T, user, odd, database, options string) {
		secret := planted.Secret(odd)
		user = strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' {
				return r
			}
			return 'u'
		}, user)
		for _, form := range planted.Forms(secret) {
			text := fmt.Sprintf("postgres://%s:%s@127.0.0.1:1/%s?%s", user, form, database, options)
			u, err := Read(text)
			if err != nil {
				planted.Check(t, "Read", err)
				continue
			}
			given, err := PostgresOptions(u.RawQuery)
			if err == nil {
				err = CheckPostgresOptions(given)
			}
			if err != nil {
				planted.Check(t, "options", err)
				continue
			}
			cfg, err := pgconn.ParseConfig(ForPgx(text, u))
			if err != nil {
				if reason := Reason(err); strings.Contains(reason, secret) || strings.Contains(reason, form) {
					t.Errorf("%q: %s shows a secret", text, reason)
				}
				continue
			}
			overrides := func(o Option) bool {
				return slices.Contains([]string{"host", "hostaddr", "port", "user", "password", "dbname", "database", "service", "servicefile", "passfile"}, o.name)
			}
			if HasHostOfPassword(cfg) || slices.ContainsFunc(given, overrides) {
				continue // it is refused, or says otherwise
			}
			password, _ := u.User.Password()
			if address := net.JoinHostPort(cfg.Host, fmt.Sprint(cfg.Port)); address != u.Host || cfg.Password != password || user != "" && cfg.User != user {
				t.Errorf("pgx finds %s, user %q, and password %q in %q", address, cfg.User, cfg.Password, text)
			}
		}
	})
}
