// Package table builds the tables of kubectl get: columns, and the contents of their cells.
package table

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// Column is one column of kubectl get. Columns with a priority above 0 are shown with -o wide.
type Column struct {
	metav1.TableColumnDefinition
	// Cell returns the value for one object: a string, or an int64 where Type is integer.
	// A cell of any other type would not survive the copy as JSON.
	Cell func(obj runtime.Object, now time.Time) any
}

// Text returns a column of strings.
func Text[P runtime.Object](name, description string, cell func(P) string) Column {
	return TextAt(name, description, func(obj P, _ time.Time) string { return cell(obj) })
}

// TextAt returns a column of strings that depend on the time.
func TextAt[P runtime.Object](name, description string, cell func(P, time.Time) string) Column {
	return Column{
		metav1.TableColumnDefinition{Name: name, Type: "string", Description: description},
		func(obj runtime.Object, now time.Time) any { return cell(obj.(P), now) },
	}
}

// Number returns a column of numbers.
func Number[P runtime.Object](name, description string, cell func(P) int) Column {
	return Column{
		metav1.TableColumnDefinition{Name: name, Type: "integer", Description: description},
		func(obj runtime.Object, _ time.Time) any { return int64(cell(obj.(P))) },
	}
}

// Wide returns the columns with the priority of columns that only -o wide shows.
func Wide(columns ...Column) []Column {
	for i := range columns {
		columns[i].Priority = 1
	}
	return columns
}

// WithName puts the name first, unless it is among the columns.
func WithName(columns []Column) []Column {
	for _, c := range columns {
		if c.Format == nameFormat {
			return columns
		}
	}
	return append([]Column{Name()}, columns...)
}

const nameFormat = "name"

// Name returns the column of the object's name. Its format makes clients print the
// resource in front of it when they print several.
func Name() Column {
	return Column{
		metav1.TableColumnDefinition{Name: "Name", Type: "string", Format: nameFormat, Description: "Name of the object, unique among its kind in its namespace."},
		func(obj runtime.Object, _ time.Time) any { return metadata(obj).GetName() },
	}
}

// Age returns the column of the time since the object was created.
func Age() Column {
	return Column{
		metav1.TableColumnDefinition{Name: "Age", Type: "string", Description: "Time since the object was created."},
		func(obj runtime.Object, now time.Time) any { return Since(metadata(obj).GetCreationTimestamp(), now) },
	}
}

// Since returns the elapsed time as kubectl shows it.
func Since(t metav1.Time, now time.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(t.Time))
}

// Convertor turns objects and lists of one kind into tables.
type Convertor struct {
	Columns []Column
	Now     func() time.Time
}

// ConvertToTable implements rest.TableConvertor.
func (c Convertor) ConvertToTable(_ context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	table := &metav1.Table{}
	now := c.Now()
	add := func(obj runtime.Object) error {
		table.Rows = append(table.Rows, c.row(obj, now))
		return nil
	}
	if meta.IsListType(obj) {
		if err := meta.EachListItem(obj, add); err != nil {
			return nil, fmt.Errorf("convert a list to a table: %w", err)
		}
	} else if err := add(obj); err != nil {
		return nil, err
	}
	if list, err := meta.ListAccessor(obj); err == nil {
		table.ResourceVersion = list.GetResourceVersion()
		table.Continue = list.GetContinue()
		table.RemainingItemCount = list.GetRemainingItemCount()
	} else if single, err := meta.CommonAccessor(obj); err == nil {
		table.ResourceVersion = single.GetResourceVersion()
	}
	if o, ok := options.(*metav1.TableOptions); !ok || !o.NoHeaders {
		for _, column := range c.Columns {
			table.ColumnDefinitions = append(table.ColumnDefinitions, column.TableColumnDefinition)
		}
	}
	return table, nil
}

func (c Convertor) row(obj runtime.Object, now time.Time) metav1.TableRow {
	row := metav1.TableRow{Object: runtime.RawExtension{Object: obj}}
	for _, column := range c.Columns {
		row.Cells = append(row.Cells, column.Cell(obj, now))
	}
	return row
}

// metadata returns the metadata of an object. Every kind with a table has it.
func metadata(obj runtime.Object) metav1.Object {
	m, err := meta.Accessor(obj)
	utilruntime.Must(err)
	return m
}
