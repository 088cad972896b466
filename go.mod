module github.com/reprise-go/reprise

go 1.26.0
