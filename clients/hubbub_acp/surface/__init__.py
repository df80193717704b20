"""The MCP server that stands for the agent: tools, resources, tasks and questions."""
