package sqlserver

import (
	"fmt"
	"strings"
)

// microsoft is the dialect of Microsoft SQL Server 2017 and later, and of Azure SQL.
// It was never run against a server yet.
type microsoft struct{}

func (microsoft) product() string       { return "Microsoft SQL Server" }
func (microsoft) defaultSchema() string { return "dbo" }

func (microsoft) table(queue string, in place) (table, error) {
	t := table{place: in, name: queue}
	if err := checkName(queue, len(queue), 128, "characters"); err != nil {
		return table{}, fmt.Errorf("queue %q: %w", queue, err)
	}
	t.quoted = quoteWith(t.schema, "[", "]") + "." + quoteWith(t.name, "[", "]")
	t.address = t.name + "@" + quoteWith(t.schema, "[", "]")
	return t, nil
}

func (microsoft) queue(t table) *queueTexts                { return &queueTexts{table: t} }
func (microsoft) subscriptions(t table) *subscriptionTexts { return &subscriptionTexts{table: t} }
func (microsoft) delayed(t table) *delayedTexts {
	return &delayedTexts{table: t, forward: func(table) string { return "" }}
}

func (microsoft) insert(*queueTexts, []outgoing, bool) []*statement    { return nil }
func (microsoft) insertDelayed(*delayedTexts, []outgoing) []*statement { return nil }
func (microsoft) list(columns ...any) []any                            { return columns }
func (microsoft) savepoint(name string) *statement { return command(`save transaction ` + name) }
func (microsoft) rollbackTo(name string) *statement { return command(`rollback transaction ` + name) }
func (microsoft) intact() *statement                                   { return command(strings.TrimSpace("")) }
func (microsoft) columns(table) *statement                             { return command("") }
func (microsoft) wanted(table, bool) []column                          { return nil }
func (microsoft) createQueue(table, bool) []string                     { return nil }
func (microsoft) createSubscriptions(table) []string                   { return nil }
func (microsoft) createDelayed(table) []string                         { return nil }
func (microsoft) lockSchema() *statement                               { return command("") }
func (microsoft) classify(err error) fault                             { return connectionFault(err, false) }
